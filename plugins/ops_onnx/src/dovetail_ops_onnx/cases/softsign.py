"""Cases of Softsign: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.softsign import Softsign

cases = drawn(unary, Softsign(), lambda x: x / (1 + np.abs(x)))
