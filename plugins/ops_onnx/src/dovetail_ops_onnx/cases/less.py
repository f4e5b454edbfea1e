"""Cases of Less: Python's own comparison."""

from dovetail_ops_onnx.cases._elementwise import comparison, drawn
from dovetail_ops_onnx.less import Less

cases = drawn(comparison, Less(), lambda a, b: a < b)
