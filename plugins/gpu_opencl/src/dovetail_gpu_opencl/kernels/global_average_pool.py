"""GlobalAveragePool."""

from dovetail_gpu_opencl.kernels._channels import MeanChannels
from dovetail_gpu_opencl.kernels._reduce import GlobalPool

__all__ = ["KERNELS"]

KERNELS = (MeanChannels(), GlobalPool("a + b", "0", end="a / COUNT"))
