"""Float operators between quantized values."""

from dovetail_cpu_onednn.int8 import AnyLayoutQuantizedKernel, QuantizedKernel
from dovetail_cpu_onednn.kernel import OnednnKernel

__all__ = ["KERNELS"]

KERNELS: tuple[OnednnKernel, ...] = (QuantizedKernel(), AnyLayoutQuantizedKernel())
