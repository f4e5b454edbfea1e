"""Test cases of the operators, computed in float64; the package's tests compare with onnxruntime besides."""
