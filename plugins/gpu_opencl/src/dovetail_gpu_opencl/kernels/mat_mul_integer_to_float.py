"""MatMulInteger whose sums are converted to float32: the kernels of MatMulInteger store either."""

from dovetail_gpu_opencl.kernels.mat_mul_integer import KERNELS

__all__ = ["KERNELS"]
