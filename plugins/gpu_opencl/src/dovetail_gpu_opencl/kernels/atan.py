"""Atan."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("atan(a)", vectorizable=True),)
