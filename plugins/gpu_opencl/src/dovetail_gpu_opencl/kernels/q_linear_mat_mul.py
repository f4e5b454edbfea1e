"""QLinearMatMul of 8-bit integers."""

from dovetail_gpu_opencl.kernels._gemm_integer import IntegerDirect, IntegerRows
from dovetail_gpu_opencl.kernels._integer import QUANTIZED_PORTS

__all__ = ["KERNELS"]

KERNELS = (IntegerRows(QUANTIZED_PORTS), IntegerDirect(QUANTIZED_PORTS))
