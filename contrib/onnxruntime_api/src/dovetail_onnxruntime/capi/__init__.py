"""The modules below `onnxruntime.capi` from which programs import."""
