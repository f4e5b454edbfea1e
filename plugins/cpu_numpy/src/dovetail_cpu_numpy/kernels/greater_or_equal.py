"""GreaterOrEqual."""

import numpy as np

from dovetail_cpu_numpy.kernels._elementwise import UfuncKernel

KERNELS = (UfuncKernel(np.greater_equal),)
