"""ReduceSumSquare."""

from dovetail_gpu_opencl.kernels._reduce import Reduce

__all__ = ["KERNELS"]

KERNELS = (Reduce("a + b", "0", "x * x"),)
