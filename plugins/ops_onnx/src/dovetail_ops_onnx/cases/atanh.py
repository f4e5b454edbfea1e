"""Cases of Atanh: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.atanh import Atanh
from dovetail_ops_onnx.cases._elementwise import drawn, unary

cases = drawn(unary, Atanh(), np.arctanh, -0.9, 0.9, special=(0.0, 1.0, -1.0, 1.5, np.nan))
