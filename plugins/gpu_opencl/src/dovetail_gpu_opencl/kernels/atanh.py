"""Atanh."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("atanh(a)", vectorizable=True),)
