"""Cases of Greater: Python's own comparison."""

from dovetail_ops_onnx.cases._elementwise import comparison, drawn
from dovetail_ops_onnx.greater import Greater

cases = drawn(comparison, Greater(), lambda a, b: a > b)
