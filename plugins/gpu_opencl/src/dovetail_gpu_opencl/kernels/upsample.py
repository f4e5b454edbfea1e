"""Upsample."""

from dovetail_gpu_opencl.kernels._resize import RESIZE

__all__ = ["KERNELS"]

KERNELS = RESIZE
