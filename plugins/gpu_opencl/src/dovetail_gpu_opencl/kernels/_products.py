"""The kernels of matrix products by floats, in order."""

from collections.abc import Callable

from dovetail.device import Refusal, TypedNode
from dovetail_gpu_opencl.kernels._gemm import GemmDirect, GemmKernel, GemmRows, Product
from dovetail_gpu_opencl.kernels._gemm_few_rows import GemmFewRows
from dovetail_gpu_opencl.kernels._gemm_pipelined import GemmPipelined
from dovetail_gpu_opencl.kernels._gemm_tiled import GemmTiled

__all__ = ["products"]


def products(product_of: Callable[[TypedNode], Product | Refusal]) -> tuple[GemmKernel, ...]:
    """All of them for an operator, whose nodes are these products."""
    kinds = (GemmRows, GemmFewRows, GemmPipelined, GemmTiled, GemmDirect)
    return tuple(kind(product_of) for kind in kinds)
