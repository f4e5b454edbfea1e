"""ReduceMin: oneDNN's reduction."""

from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernels._reduce import ReductionKernel

KERNELS = (ReductionKernel(Alg.REDUCTION_MIN),)
