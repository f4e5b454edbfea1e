"""MatMulInteger, its sums in int32 or converted to float32."""

from dovetail_gpu_opencl.kernels._gemm_integer import IntegerDirect, IntegerRows
from dovetail_gpu_opencl.kernels._integer import PLAIN_PORTS
from dovetail_gpu_opencl.kernels._integer_bytes import GemmBytes

__all__ = ["KERNELS"]

KERNELS = (IntegerRows(PLAIN_PORTS), GemmBytes(PLAIN_PORTS), IntegerDirect(PLAIN_PORTS))
