"""Shared by elementwise operators: computing without warnings in a type that is wide enough, broadcasting, post-ops."""

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import DTypeLike

from dovetail.op import Binary, DType, Eltwise, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._halves import narrowed, widened
from dovetail_ops_onnx._types import FLOATS, Array, Chain, Types

__all__ = [
    "Function",
    "as_binary",
    "as_eltwise",
    "binary",
    "broadcast",
    "broadcast_dims",
    "chain",
    "computed",
    "converted",
    "eltwise",
    "finite_range",
    "operand",
    "same_type",
    "scalar",
    "softplus",
    "wide",
]


def wide(x: Array) -> Array:
    """`x` in the type to compute in: float32 for floating-point types that are narrower, else `x` itself."""
    dtype = x.dtype
    if dtype.itemsize >= 4:  # first, because it takes a tenth of the time of the questions below
        return x
    if dtype == np.float16:
        return widened(x)
    if not DType.of(dtype).is_float:
        return x
    return x.astype(np.float32) if dtype.itemsize > 1 else np.asarray(np.take(_values_of_bytes(dtype), x.view(np.uint8)))


@lru_cache
def _values_of_bytes(dtype: np.dtype[Any]) -> Array:
    """The float32 value of each byte of a type of 8 bits or fewer; NumPy converts elements of such types one by one."""
    return np.arange(256, dtype=np.uint8).view(dtype).astype(np.float32)


def computed(function: Callable[..., Any], *arrays: Array, dtype: DTypeLike | None = None) -> Array:
    """`function` of the arrays in their `wide` types, rounded once to `dtype` (that of the first array by default).

    NumPy's floating-point warnings are off: infinities and NaN are results like others.
    """
    with np.errstate(all="ignore"):
        result = np.asarray(function(*[wide(a) for a in arrays]))
        wanted = arrays[0].dtype if dtype is None else np.dtype(dtype)
        return result if result.dtype == wanted else converted(result, wanted)


class Function(Operator):
    """Base of functions of one input, element by element. A subclass defines `function`, of an array in its `wide` type."""

    types = {"T": FLOATS}
    inputs = ("X: T",)
    outputs = ("Y: T",)
    in_place = True
    function: ClassVar[Any]

    def reference(self, x: Array) -> Array:
        """The function, rounded once."""
        return computed(self.function, x)


def converted(x: Array, dtype: np.dtype[Any]) -> Array:
    """`x` as `dtype` by NumPy's rules; `x` itself when it has the type already."""
    if dtype == np.float16 and (x.dtype == np.float32 or x.dtype.kind in "biu"):
        # float32 has all whole numbers up to 2^24, and float16 none above 65504.
        return narrowed(x.astype(np.float32, copy=False))
    return x.astype(dtype, copy=False)


def softplus(x: Array) -> Array:
    """log(1 + exp(x)), which does not overflow. NumPy's logaddexp takes ten times as long."""
    y: Array = np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))
    return y


def broadcast(*types: TensorType) -> tuple[int, ...]:
    """The shape that all `types` broadcast to, by the ONNX (and NumPy) rule. Raises `ShapeError`."""
    return broadcast_dims([t.dims for t in types])


def broadcast_dims(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """As `broadcast`, of dimensions."""
    if shapes and shapes.count(shapes[0]) == len(shapes):
        return shapes[0]  # mostly so, in a fifth of the time of the rest
    rank = max(map(len, shapes), default=0)
    found = [1] * rank
    for shape in shapes:
        for axis, size in enumerate(shape, rank - len(shape)):
            if size not in (1, found[axis]):
                if found[axis] != 1:
                    given = ", ".join(str(list(dims)) for dims in shapes)
                    raise ShapeError(
                        f"the shapes {given} do not broadcast", hint="each dimension must be equal or 1, counted from the last"
                    )
                found[axis] = size
    return tuple(found)


def same_type(*types: TensorType) -> TensorType:
    """The element type of the first, in the shape that all broadcast to. Raises `ShapeError`, `OperatorError` for no input."""
    if not types:
        raise OperatorError("takes at least 1 input, got 0")
    return types[0].with_shape(broadcast(*types))


def scalar(given: TensorType, name: str) -> None:
    """Raise `ShapeError` unless the input holds exactly one element."""
    if given.size != 1:
        raise ShapeError(f"input {name!r} is {given}; accepted: a scalar")


@lru_cache
def finite_range(dtype: np.dtype[Any]) -> tuple[float, float]:
    """The lowest and highest finite values of a numeric NumPy or ml_dtypes type."""
    if dtype.kind in "iu":
        return np.iinfo(dtype).min, np.iinfo(dtype).max
    if dtype.kind == "f" and dtype.itemsize > 1:
        return float(np.finfo(dtype).min), float(np.finfo(dtype).max)
    import ml_dtypes

    describe: Any = ml_dtypes.finfo if DType.of(dtype).is_float else ml_dtypes.iinfo
    found = describe(dtype)
    return float(found.min), float(found.max)


def eltwise(types: Types, algorithm: str, alpha: float = 0.0, beta: float = 0.0, scale: float = 1.0) -> Chain:
    """One eltwise post-op for a floating-point input, else None."""
    first = types[0]
    return (Eltwise(algorithm, alpha, beta, scale),) if first is not None and first.dtype in FLOATS else None


def as_eltwise(algorithm: str, alpha: float = 0.0, beta: float = 0.0) -> Any:
    """The method `post_ops` of an operator that is this eltwise post-op."""

    def post_ops(self: Operator, types: Types, names: Sequence[str], chained: int) -> Chain:
        return eltwise(types, algorithm, alpha, beta)

    return post_ops


def operand(types: Types, names: Sequence[str], chained: int) -> bool:
    """True when the inputs other than `chained` can be operands of post-ops: floats, other values, and no larger shape."""
    known = [t for t in types if t is not None and t.dtype in FLOATS and t.is_static]
    if len(known) < len(types):
        return False
    return names.count(names[chained]) == 1 and broadcast(*known) == known[chained].dims


def binary(types: Types, names: Sequence[str], chained: int, algorithm: str, mirrored: str) -> Chain:
    """One binary post-op whose operand is the other input: `algorithm` when input 0 is chained, else `mirrored`."""
    if not operand(types, names, chained):
        return None
    return (Binary(algorithm if chained == 0 else mirrored, names[1 - chained]),)


def as_binary(algorithm: str, mirrored: str) -> Any:
    """The method `post_ops` of an operator that is this binary post-op."""

    def post_ops(self: Operator, types: Types, names: Sequence[str], chained: int) -> Chain:
        return binary(types, names, chained, algorithm, mirrored)

    return post_ops


def chain(types: Types, names: Sequence[str], chained: int, algorithm: str) -> Chain:
    """Binary post-ops with all inputs other than `chained`, for an operation whose order does not matter."""
    if not operand(types, names, chained):
        return None
    return tuple(Binary(algorithm, name) for index, name in enumerate(names) if index != chained)
