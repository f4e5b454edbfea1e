"""Cases of BitwiseXor: Python's integers."""

import operator

from dovetail_ops_onnx.bitwise_xor import BitwiseXor
from dovetail_ops_onnx.cases._elementwise import drawn
from dovetail_ops_onnx.cases._integers import bits

cases = drawn(bits, BitwiseXor(), operator.xor)
