"""Cases of Sin: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.sin import Sin

cases = drawn(unary, Sin(), np.sin)
