"""PointwiseDepthwise: a kernel for GPUs."""

from dovetail_gpu_opencl.kernels._pointwise_depthwise import PointwiseDepthwiseTiles

__all__ = ["KERNELS"]

KERNELS = (PointwiseDepthwiseTiles(),)
