"""Cases of Asinh: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.asinh import Asinh
from dovetail_ops_onnx.cases._elementwise import drawn, unary

cases = drawn(unary, Asinh(), np.arcsinh, -9.0, 9.0)
