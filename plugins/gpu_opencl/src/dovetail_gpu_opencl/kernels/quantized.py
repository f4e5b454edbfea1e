"""Float operators between quantized values."""

from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._quantized import QuantizedConv, QuantizedElementwise, QuantizedMatMul
from dovetail_gpu_opencl.kernels._quantized_bytes import QuantizedConvBytes, QuantizedConvDirect, QuantizedMatMulBytes
from dovetail_gpu_opencl.kernels._quantized_mean import QuantizedMean
from dovetail_gpu_opencl.kernels._quantized_products import QuantizedProductBytes
from dovetail_gpu_opencl.kernels._quantized_rows import QuantizedLayerNormalization, QuantizedSoftmax

KERNELS: tuple[CLKernel, ...] = (
    *(QuantizedConv(), QuantizedConvBytes(), QuantizedConvDirect()),
    *(QuantizedMatMul(), QuantizedMatMulBytes(), QuantizedProductBytes()),
    *(QuantizedMean(), QuantizedSoftmax(), QuantizedLayerNormalization(), QuantizedElementwise()),
)
