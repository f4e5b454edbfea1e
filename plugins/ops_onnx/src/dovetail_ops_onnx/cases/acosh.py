"""Cases of Acosh: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.acosh import Acosh
from dovetail_ops_onnx.cases._elementwise import drawn, unary

cases = drawn(unary, Acosh(), np.arccosh, 1.0, 9.0, special=(1.0, np.inf, 0.5, np.nan))
