"""ReduceMin: NaN wins."""

from dovetail_gpu_opencl.kernels._reduce import Reduce

__all__ = ["KERNELS"]

KERNELS = (Reduce("a < b ? a : (a >= b ? b : a + b)", "highest"),)
