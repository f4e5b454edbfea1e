"""IsInf."""

from dovetail_gpu_opencl.kernels._with_attributes import WithAttributes

__all__ = ["KERNELS"]

KERNELS = (WithAttributes("isinf(a) && ((a > 0 && {detect_positive} != 0) || (a < 0 && {detect_negative} != 0))"),)
