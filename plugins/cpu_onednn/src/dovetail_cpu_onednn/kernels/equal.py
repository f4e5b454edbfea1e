"""Equal: NumPy's equal."""

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import BOOL, NUMBERS, UfuncKernel

KERNELS = (UfuncKernel(np.equal, NUMBERS | BOOL),)
