"""Of the modules below `onnxruntime.transformers` the one from which programs that run models import."""
