"""Neg, for integers; floating-point numbers are a chain of post-ops."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression(None, "-a"),)
