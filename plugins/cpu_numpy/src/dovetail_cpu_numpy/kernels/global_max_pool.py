"""GlobalMaxPool."""

import numpy as np

from dovetail_cpu_numpy.kernels._global_pool import GlobalPool
from dovetail_ops_onnx.reduce_max import ReduceMax

KERNELS = (GlobalPool(np.maximum, ReduceMax()),)
