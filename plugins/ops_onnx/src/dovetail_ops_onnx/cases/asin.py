"""Cases of Asin: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.asin import Asin
from dovetail_ops_onnx.cases._elementwise import drawn, unary

cases = drawn(unary, Asin(), np.arcsin, -1.0, 1.0, special=(0.0, 1.0, -1.0, -1.5, np.nan))
