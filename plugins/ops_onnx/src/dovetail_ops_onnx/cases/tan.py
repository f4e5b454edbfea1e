"""Cases of Tan: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.tan import Tan

cases = drawn(unary, Tan(), np.tan, -1.4, 1.4)
