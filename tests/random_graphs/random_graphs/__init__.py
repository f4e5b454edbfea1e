"""Random ONNX graphs, and the comparison of dovetail with onnxruntime, onnx.reference and float64 on each of their nodes."""
