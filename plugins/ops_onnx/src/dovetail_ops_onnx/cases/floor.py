"""Cases of Floor: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.floor import Floor

cases = drawn(unary, Floor(), np.floor)
