"""ReduceMin: NumPy's minimum."""

import numpy as np

from dovetail_cpu_onednn.kernels._ufunc_reduction import UfuncReduction

KERNELS = (UfuncReduction(np.minimum),)
