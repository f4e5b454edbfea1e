"""dovetail_frontend_onnx."""
