"""Cases of ArgMax: Python's search in each list, and by hand."""

from dovetail_ops_onnx.arg_max import ArgMax
from dovetail_ops_onnx.cases._elementwise import drawn
from dovetail_ops_onnx.cases._extremes import places

cases = drawn(places, ArgMax, max, [0, 0], [2, 3])
