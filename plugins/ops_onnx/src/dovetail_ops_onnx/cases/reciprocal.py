"""Cases of Reciprocal: NumPy in float64."""

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.reciprocal import Reciprocal

cases = drawn(unary, Reciprocal(), lambda x: 1 / x, 0.25, 4.0)
