"""Less: NumPy's less."""

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc import UfuncKernel

KERNELS = (UfuncKernel(np.less),)
