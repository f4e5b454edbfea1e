"""Float operators between quantized values."""

from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._quantized import QuantizedConv, QuantizedElementwise, QuantizedMatMul
from dovetail_gpu_opencl.kernels._quantized_bytes import (
    QuantizedConvBytes,
    QuantizedConvDirect,
    QuantizedMatMulBytes,
    QuantizedMatMulDirect,
)

KERNELS: tuple[CLKernel, ...] = (
    *(QuantizedConv(), QuantizedConvBytes(), QuantizedConvDirect()),
    *(QuantizedMatMul(), QuantizedMatMulBytes(), QuantizedMatMulDirect()),
    QuantizedElementwise(),
)
