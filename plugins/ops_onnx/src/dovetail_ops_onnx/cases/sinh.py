"""Cases of Sinh: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.sinh import Sinh

cases = drawn(unary, Sinh(), np.sinh)
