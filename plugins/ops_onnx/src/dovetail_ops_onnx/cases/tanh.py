"""Cases of Tanh: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.tanh import Tanh

cases = drawn(unary, Tanh(), np.tanh)
