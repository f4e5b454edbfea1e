"""Cases of Log: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.log import Log

cases = drawn(unary, Log(), np.log, 0.01, 9.0)
