"""Cases of Cos: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.cos import Cos

cases = drawn(unary, Cos(), np.cos)
