"""Sub of integers, float64 and single numbers: NumPy's subtract. Other float32 is for oneDNN's binary primitive."""

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import ArithmeticKernel

KERNELS = (ArithmeticKernel(np.subtract),)
