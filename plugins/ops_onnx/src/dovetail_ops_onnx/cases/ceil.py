"""Cases of Ceil: NumPy in float64."""

import numpy as np

from dovetail_ops_onnx.cases._elementwise import drawn, unary
from dovetail_ops_onnx.ceil import Ceil

cases = drawn(unary, Ceil(), np.ceil)
