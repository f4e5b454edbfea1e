"""IsNaN: NumPy's isnan."""

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import FLOATS, UfuncKernel

KERNELS = (UfuncKernel(np.isnan, FLOATS),)
