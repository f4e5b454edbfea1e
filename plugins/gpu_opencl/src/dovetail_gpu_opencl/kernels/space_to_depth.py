"""SpaceToDepth."""

from dovetail_gpu_opencl.kernels._blocks import Blocks

__all__ = ["KERNELS"]

KERNELS = (Blocks(to_space=False),)
