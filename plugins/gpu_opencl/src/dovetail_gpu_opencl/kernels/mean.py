"""Mean."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("a + b", vectorizable=True, fold=True, last="a / N"),)
