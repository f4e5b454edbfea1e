"""What the linear quantizations share: scales and zero points for the whole tensor, for an axis, or for blocks of an axis."""

import numpy as np

from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail.ops._shapes import check_axis
from dovetail.ops._types import FLOAT6, Array

SCALED = frozenset({DType.FLOAT32, DType.FLOAT16, DType.BFLOAT16})
FLOAT8 = frozenset({DType.FLOAT8_E4M3FN, DType.FLOAT8_E4M3FNUZ, DType.FLOAT8_E5M2, DType.FLOAT8_E5M2FNUZ})
QUANTIZED = (
    frozenset({DType.INT8, DType.UINT8, DType.INT16, DType.UINT16, DType.INT4, DType.UINT4, DType.INT2, DType.UINT2})
    | FLOAT8
    | FLOAT6
    | {DType.FLOAT4_E2M1}
)


def dtype_of(number: int, name: str, accepted: frozenset[DType]) -> DType | None:
    """The type of attribute `name`, whose 0 means "not given". Raises `OperatorError` for one that is not accepted."""
    if number == 0:
        return None
    dtype = DType.from_onnx(number)
    if dtype not in accepted:
        raise OperatorError(f"attribute {name!r} is {dtype}; accepted: {', '.join(sorted(d.value for d in accepted))}")
    return dtype


def check_parameters(x: TensorType, scale: TensorType, zero_point: TensorType | None, axis: int, block_size: int) -> None:
    """Raise `ShapeError` unless the shapes of scale and zero point are those that ONNX defines for `axis` and `block_size`."""
    if zero_point is not None and zero_point.dims != scale.dims and not zero_point.size == scale.size == 1:
        raise ShapeError(f"the zero point is {zero_point}, the scale {scale}; accepted: equal shapes")
    if block_size < 0:
        raise OperatorError(f"attribute 'block_size' is {block_size}; accepted: 0 (no blocks) or more")
    if scale.rank == 0 or (scale.size == 1 and not block_size):
        return
    at = check_axis(axis, x.rank)
    # A scale for each block has x's shape but for the axis; a scale for each place of the axis is a vector.
    blocks = (*x.dims[:at], -(-x.dims[at] // max(1, block_size)), *x.dims[at + 1 :])
    wanted = blocks if block_size else (x.dims[at],)
    if scale.dims != wanted:
        raise ShapeError(f"x is {x}, the scale {scale}; accepted for axis {at}: one element, or shape {list(wanted)}")


def spread(parameter: Array, shape: tuple[int, ...], axis: int, block_size: int) -> Array:
    """A scale or zero point so that it broadcasts to `shape`."""
    if parameter.ndim == 0 or (parameter.size == 1 and not block_size):
        return parameter.reshape(())
    at = check_axis(axis, len(shape))
    if not block_size:
        return parameter.reshape([shape[at] if a == at else 1 for a in range(len(shape))])
    return np.take(parameter, np.arange(shape[at]) // block_size, axis=at)
