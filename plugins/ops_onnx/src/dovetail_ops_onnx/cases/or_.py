"""Cases of Or: the truth table."""

from dovetail_ops_onnx.cases._elementwise import drawn, truth_table
from dovetail_ops_onnx.or_ import Or

cases = drawn(truth_table, Or(), [[False, True], [True, True]])
