"""CumProd."""

from dovetail_gpu_opencl.kernels._cumulative import Cumulative

__all__ = ["KERNELS"]

KERNELS = (Cumulative(1, "((a) * (b))"),)
