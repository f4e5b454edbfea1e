"""And."""

import numpy as np

from dovetail_cpu_numpy.kernels._elementwise import BOOL, UfuncKernel

KERNELS = (UfuncKernel(np.logical_and, BOOL),)
