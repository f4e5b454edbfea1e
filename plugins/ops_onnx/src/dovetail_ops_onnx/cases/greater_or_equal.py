"""Cases of GreaterOrEqual: Python's own comparison."""

from dovetail_ops_onnx.cases._elementwise import comparison, drawn
from dovetail_ops_onnx.greater_or_equal import GreaterOrEqual

cases = drawn(comparison, GreaterOrEqual(), lambda a, b: a >= b)
