"""Cosh."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("cosh(a)", vectorizable=True),)
