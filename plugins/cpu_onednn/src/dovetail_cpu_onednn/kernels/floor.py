"""Floor: NumPy's floor."""

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import FLOATS, UfuncKernel

KERNELS = (UfuncKernel(np.floor, FLOATS),)
