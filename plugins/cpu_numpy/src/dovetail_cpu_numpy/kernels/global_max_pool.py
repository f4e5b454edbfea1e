"""GlobalMaxPool."""

import numpy as np

from dovetail_cpu_numpy.kernels._global_pool import GlobalPool

KERNELS = (GlobalPool(np.maximum),)
