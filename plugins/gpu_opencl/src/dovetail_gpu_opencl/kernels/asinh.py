"""Asinh."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("asinh(a)", vectorizable=True),)
