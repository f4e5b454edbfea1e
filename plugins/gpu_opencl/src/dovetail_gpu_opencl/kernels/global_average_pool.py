"""GlobalAveragePool."""

from dovetail_gpu_opencl.kernels._reduce import GlobalPool

__all__ = ["KERNELS"]

KERNELS = (GlobalPool("a + b", "0", end="a / COUNT"),)
