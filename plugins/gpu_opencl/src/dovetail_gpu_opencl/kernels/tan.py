"""Tan."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("fabs(a) < (A)1e-30f ? a : tan(a)", vectorizable=True),)
