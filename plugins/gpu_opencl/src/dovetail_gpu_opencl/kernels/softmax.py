"""Softmax."""

from dovetail_gpu_opencl.kernels._softmax import SoftmaxRows

__all__ = ["KERNELS"]

KERNELS = (SoftmaxRows(),)
