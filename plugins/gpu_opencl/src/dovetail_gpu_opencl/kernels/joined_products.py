"""JoinedProducts: the kernels of MatMulBlocks for few rows."""

from dovetail_gpu_opencl.kernels.mat_mul_blocks import BlocksRow, BlocksSplit

__all__ = ["KERNELS"]

KERNELS = (BlocksRow(), BlocksSplit())
