"""Cases of HardSwish: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.hard_swish import HardSwish

cases = drawn(unary, HardSwish(), lambda x: x * np.clip(x / 6 + 0.5, 0, 1), -5.0, 5.0)
