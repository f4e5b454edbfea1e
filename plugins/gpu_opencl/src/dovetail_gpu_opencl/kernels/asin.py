"""Asin."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("asin(a)", vectorizable=True),)
