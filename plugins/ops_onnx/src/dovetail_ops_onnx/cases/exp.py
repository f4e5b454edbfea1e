"""Cases of Exp: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.exp import Exp

cases = drawn(unary, Exp(), np.exp)
