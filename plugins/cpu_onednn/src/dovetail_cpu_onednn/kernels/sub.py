"""Sub of integers, float64, single numbers, and outer sums: NumPy's subtract, or Python's."""

import operator

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import ArithmeticKernel

KERNELS = (ArithmeticKernel(np.subtract, operator.sub),)
