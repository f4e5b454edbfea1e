"""ReduceProd: oneDNN's reduction, or NumPy's products."""

import numpy as np

from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernels._reduce import ReductionKernel
from dovetail_cpu_onednn.kernels._ufunc_reduction import UfuncReduction

KERNELS = (ReductionKernel(Alg.REDUCTION_MUL), UfuncReduction(np.multiply))
