"""Cases of BitwiseOr: Python's integers."""

import operator

from dovetail_ops_onnx.bitwise_or import BitwiseOr
from dovetail_ops_onnx.cases._elementwise import drawn
from dovetail_ops_onnx.cases._integers import bits

cases = drawn(bits, BitwiseOr(), operator.or_)
