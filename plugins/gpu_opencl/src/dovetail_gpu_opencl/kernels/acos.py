"""Acos."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("acos(a)", vectorizable=True),)
