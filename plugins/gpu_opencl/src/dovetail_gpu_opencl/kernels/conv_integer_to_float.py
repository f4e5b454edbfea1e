"""ConvInteger whose sums are converted to float32: the kernels of ConvInteger store either."""

from dovetail_gpu_opencl.kernels.conv_integer import KERNELS

__all__ = ["KERNELS"]
