"""ReduceMean of floats; the reference cuts off for integers."""

import numpy as np

from dovetail_cpu_numpy.kernel import BLAS
from dovetail_cpu_numpy.kernels._reduce import UfuncReduce

KERNELS = (UfuncReduce(np.add, BLAS, mean=True),)
