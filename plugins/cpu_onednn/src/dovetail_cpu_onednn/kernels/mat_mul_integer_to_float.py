"""MatMulInteger whose sums are converted to float32: the kernels of MatMulInteger store either."""

from dovetail_cpu_onednn.kernels.mat_mul_integer import KERNELS

__all__ = ["KERNELS"]
