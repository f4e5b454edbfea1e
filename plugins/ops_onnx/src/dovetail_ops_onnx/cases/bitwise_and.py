"""Cases of BitwiseAnd: Python's integers."""

import operator

from dovetail_ops_onnx.bitwise_and import BitwiseAnd
from dovetail_ops_onnx.cases._elementwise import drawn
from dovetail_ops_onnx.cases._integers import bits

cases = drawn(bits, BitwiseAnd(), operator.and_)
