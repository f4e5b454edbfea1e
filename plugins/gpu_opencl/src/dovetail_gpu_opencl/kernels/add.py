"""Add."""

from dovetail_gpu_opencl.elementwise import Expression

__all__ = ["KERNELS"]

KERNELS = (Expression("a + b", "a + b", vectorizable=True),)
