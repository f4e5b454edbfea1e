"""Cases of Acos: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.acos import Acos
from dovetail_ops_onnx.cases._elementwise import drawn, unary

cases = drawn(unary, Acos(), np.arccos, -1.0, 1.0, special=(0.0, 1.0, -1.0, 1.5, np.nan))
