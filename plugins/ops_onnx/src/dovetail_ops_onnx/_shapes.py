"""Shared by operators on shapes and data: known inputs, axes, and index checks."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.errors import DataDependentShape
from dovetail.op import Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._types import Array, Types

__all__ = [
    "Movement",
    "are_below",
    "check_axes",
    "check_axis",
    "check_dims",
    "check_indices",
    "constant_type",
    "ints",
    "known",
    "known_ints",
]

_UNSIGNED = {size: np.dtype(f"u{size}") for size in (1, 2, 4, 8)}


class Movement(Operator):
    """Base of operators that move or describe data and compute nothing."""

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        """None: data is only moved."""
        return 0


def known(given: TensorType, name: str) -> Array:
    """The content of input `name`. Raises `DataDependentShape` when it is not known while planning."""
    if given.value is None:
        raise DataDependentShape(
            f"the output shape depends on data: on the content of input {name!r}, which is not known while planning",
            hint=f"make {name!r} a constant, or compute it from constants and shapes",
        )
    return given.value


def ints(values: Array, name: str) -> tuple[int, ...]:
    """A vector (or a scalar) of integers as Python ints. Raises `ShapeError` for a higher rank."""
    if values.ndim > 1:
        raise ShapeError(f"input {name!r} has shape {list(values.shape)}; accepted: one dimension")
    return tuple(map(int, values.tolist() if values.ndim else [values.item()]))


def known_ints(given: TensorType, name: str) -> tuple[int, ...]:
    """The content of a vector input as Python ints. Raises `ShapeError` when it is not known or not a vector."""
    return ints(known(given, name), name)


def check_axis(axis: int, rank: int, name: str = "axis") -> int:
    """`axis` counted from the front. Raises `ShapeError` outside -rank to rank - 1."""
    if not -rank <= axis < rank:
        accepted = f"{-rank} to {rank - 1}" if rank else "none, because the input is a scalar"
        raise ShapeError(f"{name} is {axis}; accepted: {accepted}")
    return axis % rank


def check_axes(axes: Iterable[int], rank: int) -> tuple[int, ...]:
    """`axes` counted from the front, in the order given. Raises `ShapeError` for one out of range or named twice."""
    given = [int(axis) for axis in axes]
    found = tuple([check_axis(axis, rank, "axes") for axis in given])
    if len(set(found)) < len(found):
        raise ShapeError(f"axes {given} name an axis twice; accepted: distinct axes")
    return found


def check_dims(dims: Sequence[int], name: str) -> tuple[int, ...]:
    """`dims` as a shape. Raises `ShapeError` for a negative one."""
    if dims and min(dims) < 0:
        raise ShapeError(f"{name} is {list(dims)}; accepted: sizes of 0 or more")
    return tuple(dims)


def are_below(indices: Array, bound: int) -> bool:
    """Whether one or more integers are below a bound when read without a sign: then none is outside -bound to bound - 1.

    One comparison each, where a smallest and a greatest take two. Negative integers may be within and not below.
    """
    return bool(np.maximum.reduce(indices.view(_UNSIGNED[indices.itemsize]), axis=None) < bound)


def check_indices(indices: Array, bound: int, axis: int) -> None:
    """Raise `OperatorError` for an index outside -bound to bound - 1."""
    if not indices.size or are_below(indices, bound):
        return
    if np.minimum.reduce(indices, axis=None) >= -bound and np.maximum.reduce(indices, axis=None) < bound:
        return
    at = tuple(int(i) for i in np.argwhere((indices < -bound) | (indices >= bound))[0])
    raise OperatorError(
        f"index {int(indices[at])} (at {list(at)} of the indices) is outside axis {axis} of size {bound}",
        hint=f"accepted: {-bound} to {bound - 1}" if bound else "an axis of size 0 takes no index",
    )


def constant_type(array: Array) -> TensorType:
    """The type of a result that is known while planning, with its content made read-only."""
    array.flags.writeable = False
    return TensorType.of(array, known=True)
