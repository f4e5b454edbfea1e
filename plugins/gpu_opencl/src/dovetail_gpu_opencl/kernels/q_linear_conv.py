"""QLinearConv: quantized sums."""

from dovetail_gpu_opencl.kernels._conv_integer import IntegerConvDirect, IntegerConvRows
from dovetail_gpu_opencl.kernels._integer import QUANTIZED_PORTS

__all__ = ["KERNELS"]

KERNELS = (IntegerConvRows(QUANTIZED_PORTS), IntegerConvDirect(QUANTIZED_PORTS))
