"""Pow, for floating-point bases."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("pow(a, (A)b)"),)
