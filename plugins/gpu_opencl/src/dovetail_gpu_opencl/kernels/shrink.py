"""Shrink, for floating-point numbers."""

from dovetail_gpu_opencl.kernels._with_attributes import WithAttributes

__all__ = ["KERNELS"]

KERNELS = (WithAttributes("a < -({lambd}) ? a + {bias} : (a > {lambd} ? a - {bias} : (A)0)", vectorizable=True),)
