"""Float operators between quantized values."""

from dovetail_cpu_onednn.kernel import OnednnKernel
from dovetail_cpu_onednn.kernels._quantized import AnyLayoutQuantizedKernel, QuantizedKernel

__all__ = ["KERNELS"]

KERNELS: tuple[OnednnKernel, ...] = (QuantizedKernel(), AnyLayoutQuantizedKernel())
