"""Float operators between quantized values."""

from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._quantized import QuantizedConv, QuantizedElementwise, QuantizedMatMul
from dovetail_gpu_opencl.kernels._quantized_bytes import QuantizedConvBytes, QuantizedConvDirect, QuantizedMatMulBytes
from dovetail_gpu_opencl.kernels._quantized_mean import QuantizedMean

KERNELS: tuple[CLKernel, ...] = (
    *(QuantizedConv(), QuantizedConvBytes(), QuantizedConvDirect()),
    *(QuantizedMatMul(), QuantizedMatMulBytes(), QuantizedMean(), QuantizedElementwise()),
)
