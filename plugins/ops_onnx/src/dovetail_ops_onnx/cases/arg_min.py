"""Cases of ArgMin: Python's search in each list, and by hand."""

from dovetail_ops_onnx.arg_min import ArgMin
from dovetail_ops_onnx.cases._elementwise import drawn
from dovetail_ops_onnx.cases._extremes import places

cases = drawn(places, ArgMin, min, [1, 0], [3, 3])
