"""Softsign."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("a / ((A)1 + fabs(a))", vectorizable=True),)
