"""Float operators between quantized values."""

from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._quantized import QuantizedConv, QuantizedElementwise, QuantizedMatMul

KERNELS: tuple[CLKernel, ...] = (QuantizedConv(), QuantizedMatMul(), QuantizedElementwise())
