"""ArgMax."""

from dovetail_gpu_opencl.kernels._arg import Arg

__all__ = ["KERNELS"]

KERNELS = (Arg(largest=True),)
