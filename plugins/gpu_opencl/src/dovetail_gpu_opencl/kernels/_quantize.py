"""Which scale and zero point belong to an element: one for the tensor, for each place of an axis, or for blocks of an axis."""

import math

from dovetail.device import DType, TypedNode
from dovetail_gpu_opencl.narrow import NARROW

__all__ = ["REAL", "STORED", "parameter_places"]

REAL = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
STORED = frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, *NARROW}) - {DType.BFLOAT16}


def parameter_places(node: TypedNode) -> tuple[int, int, int, int, int, int]:
    """inner, size, block and three strides: element o has the parameter of

    o / (inner * size) * outer_stride + o / inner % size / block * block_stride + o % inner * inner_stride.
    """
    x, scale = node.inputs[:2]
    assert x is not None
    assert scale is not None
    block: int = node.op.block_size  # type: ignore[attr-defined]  # a linear quantization
    if scale.rank == 0 or (scale.size == 1 and not block):
        return 1, 1, 1, 0, 0, 0
    axis: int = node.op.axis % x.rank  # type: ignore[attr-defined]  # a linear quantization
    inner, size = math.prod(x.dims[axis + 1 :]), x.dims[axis]
    return (inner, size, block, scale.dims[axis] * inner, inner, 1) if block else (inner, size, 1, 0, 1, 0)
