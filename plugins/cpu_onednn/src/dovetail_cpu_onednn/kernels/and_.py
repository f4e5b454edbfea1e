"""And: NumPy's logical_and."""

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import BOOL, UfuncKernel

KERNELS = (UfuncKernel(np.logical_and, BOOL),)
