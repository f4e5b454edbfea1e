"""Celu."""

from dovetail_gpu_opencl.kernels._with_attributes import WithAttributes

__all__ = ["KERNELS"]

KERNELS = (WithAttributes("a > (A)0 ? a : {alpha} * expm1(a / {alpha})", vectorizable=True),)
