"""Sub of integers, float64 and single numbers: NumPy's subtract, or Python's. Other float32 is for oneDNN's binary primitive."""

import operator

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import ArithmeticKernel

KERNELS = (ArithmeticKernel(np.subtract, operator.sub),)
