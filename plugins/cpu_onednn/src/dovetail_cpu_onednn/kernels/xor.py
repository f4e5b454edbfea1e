"""Xor: NumPy's logical_xor."""

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import BOOL, UfuncKernel

KERNELS = (UfuncKernel(np.logical_xor, BOOL),)
