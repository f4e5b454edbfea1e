"""ConvInteger whose sums are converted to float32: the kernels of ConvInteger store either."""

from dovetail_cpu_onednn.kernels.conv_integer import KERNELS

__all__ = ["KERNELS"]
