"""Cases of And: the truth table."""

from dovetail_ops_onnx.and_ import And
from dovetail_ops_onnx.cases._elementwise import drawn, truth_table

cases = drawn(truth_table, And(), [[False, False], [False, True]])
