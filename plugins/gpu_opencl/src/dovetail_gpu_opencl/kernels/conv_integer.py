"""ConvInteger: int32 sums."""

from dovetail_gpu_opencl.kernels._conv_integer import IntegerConvDirect, IntegerConvRows
from dovetail_gpu_opencl.kernels._integer import PLAIN_PORTS
from dovetail_gpu_opencl.kernels._integer_bytes import ConvBytes

__all__ = ["KERNELS"]

KERNELS = (IntegerConvRows(PLAIN_PORTS), ConvBytes(PLAIN_PORTS), IntegerConvDirect(PLAIN_PORTS))
