"""Equal."""

import numpy as np

from dovetail_cpu_numpy.kernels._elementwise import BOOL, NUMBERS, UfuncKernel

KERNELS = (UfuncKernel(np.equal, NUMBERS | BOOL),)
