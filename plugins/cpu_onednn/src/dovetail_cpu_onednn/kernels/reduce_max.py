"""ReduceMax: NumPy's maximum."""

import numpy as np

from dovetail_cpu_onednn.kernels._extremes import ExtremeKernel

KERNELS = (ExtremeKernel(np.maximum),)
