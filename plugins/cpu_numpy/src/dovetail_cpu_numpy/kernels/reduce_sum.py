"""ReduceSum."""

import numpy as np

from dovetail_cpu_numpy.kernels._reduce import UfuncReduce

KERNELS = (UfuncReduce(np.add),)
