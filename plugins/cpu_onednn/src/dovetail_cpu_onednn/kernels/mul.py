"""Mul of integers, float64, single numbers, and outer products: NumPy's multiply, or Python's."""

import operator

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import ArithmeticKernel

KERNELS = (ArithmeticKernel(np.multiply, operator.mul),)
