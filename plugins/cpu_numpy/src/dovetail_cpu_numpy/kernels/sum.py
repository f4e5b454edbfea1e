"""Sum."""

import numpy as np

from dovetail_cpu_numpy.kernel import BLAS
from dovetail_cpu_numpy.kernels._elementwise import UfuncKernel

KERNELS = (UfuncKernel(np.add, BLAS),)
