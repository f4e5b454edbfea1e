"""Cases of LessOrEqual: Python's own comparison."""

from dovetail_ops_onnx.cases._elementwise import comparison, drawn
from dovetail_ops_onnx.less_or_equal import LessOrEqual

cases = drawn(comparison, LessOrEqual(), lambda a, b: a <= b)
