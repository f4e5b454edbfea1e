"""Cases of Cosh: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.cosh import Cosh

cases = drawn(unary, Cosh(), np.cosh)
