"""ReduceMax: oneDNN's reduction, or NumPy's maximum."""

import numpy as np

from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernels._reduce import ExtremeKernel
from dovetail_cpu_onednn.kernels._ufunc_reduction import UfuncReduction

KERNELS = (
    ExtremeKernel(Alg.REDUCTION_MAX),
    UfuncReduction(np.maximum),
)
