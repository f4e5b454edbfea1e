"""MatMulRows: the kernels of MatMulBlocks that pack matrices again, for CPUs."""

from dovetail_gpu_opencl.kernels.mat_mul_blocks import BlocksRow, BlocksRows

__all__ = ["KERNELS"]

KERNELS = (BlocksRow(), BlocksRows())
