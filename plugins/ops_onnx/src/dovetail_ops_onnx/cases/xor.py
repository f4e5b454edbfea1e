"""Cases of Xor: the truth table."""

from dovetail_ops_onnx.cases._elementwise import drawn, truth_table
from dovetail_ops_onnx.xor import Xor

cases = drawn(truth_table, Xor(), [[False, True], [True, False]])
