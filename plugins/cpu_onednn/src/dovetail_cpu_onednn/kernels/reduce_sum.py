"""ReduceSum: oneDNN's reduction, or NumPy's."""

import numpy as np

from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernels._reduce import ColumnKernel, ReductionKernel, RowKernel
from dovetail_cpu_onednn.kernels._ufunc_reduction import UfuncReduction

KERNELS = (RowKernel(is_mean=False), ReductionKernel(Alg.REDUCTION_SUM), ColumnKernel(is_mean=False), UfuncReduction(np.add))
