"""Cases of Sqrt: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.sqrt import Sqrt

cases = drawn(unary, Sqrt(), np.sqrt, 0.0, 9.0)
