"""Cases of Atan: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.atan import Atan
from dovetail_ops_onnx.cases._elementwise import drawn, unary

cases = drawn(unary, Atan(), np.arctan, -9.0, 9.0)
