"""ReduceMax: NumPy's maximum."""

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc_reduction import UfuncReduction

KERNELS = (UfuncReduction(np.maximum),)
