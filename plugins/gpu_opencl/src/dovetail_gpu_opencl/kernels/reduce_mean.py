"""ReduceMean."""

from dovetail_gpu_opencl.kernels._channels import MeanChannels
from dovetail_gpu_opencl.kernels._reduce import Reduce

__all__ = ["KERNELS"]

KERNELS = (MeanChannels(), Reduce("a + b", "0", end="a / COUNT", whole_end="(T)a / (COUNT > 0 ? COUNT : 1)"))
