"""Add of integers, float64, single numbers, and outer sums: NumPy's add, or Python's."""

import operator

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import ArithmeticKernel

KERNELS = (ArithmeticKernel(np.add, operator.add),)
