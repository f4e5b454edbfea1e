"""Sub of integers and float64: NumPy's subtract. float32 is for oneDNN's binary primitive."""

import numpy as np

from dovetail.device import DType
from dovetail_cpu_onednn.kernels._ufunc import NUMBERS, UfuncKernel

KERNELS = (UfuncKernel(np.subtract, NUMBERS - {DType.FLOAT32}),)
