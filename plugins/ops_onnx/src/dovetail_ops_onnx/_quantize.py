"""Shared by the linear quantizations: scales and zero points for the whole tensor, for an axis, or for blocks of an axis."""

import numpy as np

from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._casts import cast
from dovetail_ops_onnx._elementwise import finite_range
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import FLOAT6, Array

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


EIGHT_BITS = frozenset({DType.INT8, DType.UINT8})


def shifted(x: Array, zero_point: Array | None, terms: int = 0) -> Array:
    """x - zero_point in float64, which holds every 8-bit difference and the sums of 2^36 products of them exactly.

    In float32, which takes half the time, where that holds the sums of `terms` products.
    """
    exact = np.dtype(np.float32 if 0 < terms * 255**2 <= 1 << 24 else np.float64)
    return x.astype(exact) if zero_point is None else x.astype(exact) - zero_point.astype(exact)


def per_channel(parameter: Array, rank: int) -> Array:
    """A scale or zero point of weights [M, ...] so that it broadcasts to them: one, or one for each output channel."""
    return parameter.reshape(()) if parameter.size == 1 else parameter.reshape(-1, *(1,) * (rank - 1))


def per_row(parameter: Array) -> Array:
    """A scale or zero point of a matrix so that it broadcasts: a vector has one element for each row."""
    return parameter.reshape(-1, 1) if parameter.ndim == 1 and parameter.size > 1 else parameter


def requantized(real: Array, scale: Array, zero_point: Array) -> Array:
    """saturate(round(real / scale) + zero_point), halves to even, of the type of the zero point."""
    with np.errstate(all="ignore"):
        quotient = real / scale.astype(np.float64)
        if not DType.of(zero_point.dtype).is_integer:
            return cast((quotient + zero_point.astype(np.float64)).astype(np.float32), DType.of(zero_point.dtype))
        low, high = finite_range(zero_point.dtype)
        return np.asarray(np.clip(np.rint(quotient) + zero_point, low, high)).astype(zero_point.dtype)


def wrapped(exact: Array) -> Array:
    """Sums of products as int32: those in float64 wrap as the accumulators of the standard do, those in float32 are in range."""
    return exact.astype(np.int32) if exact.dtype == np.float32 else exact.astype(np.int64).astype(np.int32)


def check_channels(parameter: TensorType | None, name: str, channels: int) -> None:
    """Raise `ShapeError` unless a parameter of weights is one element, or one for each output channel."""
    if parameter is not None and parameter.size != 1 and parameter.dims != (channels,):
        raise ShapeError(f"{name} is {parameter}; accepted: one element, or [{channels}]")


def check_lines(parameter: TensorType | None, name: str, matrix: TensorType, axis: int) -> None:
    """Raise `ShapeError` unless a parameter of a matrix is one element, or one for each row (`axis` -2) or column (-1).

    Those are a vector, or the shape of the matrix with 1 at the other of the last two axes.
    """
    if parameter is None or parameter.size == 1:
        return
    other = matrix.rank - 1 if axis == -2 else matrix.rank - 2
    full = tuple(1 if at == other else size for at, size in enumerate(matrix.dims))
    if matrix.rank < 2 or parameter.dims not in (matrix.dims[axis:][:1], full):
        raise ShapeError(f"{name} is {parameter} for a matrix {matrix}; accepted: one element, a vector, or shape {list(full)}")
