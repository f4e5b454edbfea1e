"""Cases of Min: Python's min, element by element."""

from dovetail_ops_onnx.cases._elementwise import drawn
from dovetail_ops_onnx.cases._extremes import among_inputs
from dovetail_ops_onnx.min import Min

cases = drawn(among_inputs, Min(), min)
