"""NormalizedProduct: a kernel for products in a pipeline."""

from dovetail_gpu_opencl.kernels._normalized_product import NormalizedPipelined
from dovetail_gpu_opencl.kernels.mat_mul import product_of

__all__ = ["KERNELS"]

KERNELS = (NormalizedPipelined(product_of),)
