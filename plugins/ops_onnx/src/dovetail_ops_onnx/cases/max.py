"""Cases of Max: Python's max, element by element."""

from dovetail_ops_onnx.cases._elementwise import drawn
from dovetail_ops_onnx.cases._extremes import among_inputs
from dovetail_ops_onnx.max import Max

cases = drawn(among_inputs, Max(), max)
