"""Bounds of values, to find where a fused clip, which loses NaN, never receives any."""

import math
import weakref
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Binary, DType, Eltwise, PostOp, Prelu, Sum, TensorType, TypedNode
from dovetail.lru import LruCache

__all__ = ["MODERATE", "are_moderate", "clip_checks", "has_clip", "stays_finite"]

LARGEST = 1e37
"""Sums of numbers whose absolute values add up to less stay finite in float32, in whatever order and rounding."""

MODERATE = 1e12
"""The bound that a run checks where no better one is known: products of two such matrices stay below `LARGEST`."""

_KNOWN: LruCache[int, tuple[weakref.ref[Any], float]] = LruCache(1024)

Bound = Callable[[str], float]
"""Value name -> bound of its absolute elements; infinity where it may hold NaN."""

_NO_LARGER = frozenset({"abs", "gelu_erf", "gelu_tanh", "hardswish", "relu", "swish"})
_WITHIN_ONE = frozenset({"logistic", "tanh"})


def has_clip(node: TypedNode) -> bool:
    """Whether the post-ops include a clip."""
    return any(map(_is_clip, node.node.post_ops)) if node.node.post_ops else False  # mostly without


def stays_finite(node: TypedNode) -> bool:
    """Whether no clip in the node's chain receives infinity or NaN while all its data is below `MODERATE`."""
    return _bounds_of(node, lambda _: MODERATE)[0] < LARGEST


def clip_checks(nodes: Sequence[TypedNode], constants: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, ...] | None]:
    """For each node with a clip, the values that a run compares with `MODERATE`. Nodes in order of execution.

    Empty where weights and the limits of earlier clips already bound them, provided that all earlier checks of the run passed.
    None where the constants are so large that no check helps.
    """
    found: dict[str, tuple[str, ...] | None] = {}
    clips = [index for index, node in enumerate(nodes) if has_clip(node)]
    if not clips:
        return found
    bounds: MutableMapping[str, float] = {}

    def bound(name: str) -> float:
        if name not in bounds:
            bounds[name] = _largest_constant(constants[name]) if name in constants else math.inf
        return bounds[name]

    for node in nodes[: clips[-1] + 1]:  # the weights behind them need no bound, which takes a look at each
        peak, last = _bounds_of(node, bound)
        if has_clip(node):
            unknown = tuple(name for name in _data(node, constants) if bound(name) > MODERATE) if peak >= LARGEST else ()
            if unknown:
                bounds.update(dict.fromkeys(unknown, MODERATE))
                peak, last = _bounds_of(node, bound)
            found[node.name] = unknown if peak < LARGEST else None
        bounds[node.node.outputs[0]] = last
    return found


def are_moderate(node: TypedNode, names: Iterable[str] | None, array: Callable[[str], NDArray[Any]]) -> Callable[[], bool]:
    """A call that returns whether the values, by default all data of the node, are below `MODERATE`. NaN is not."""
    names = _data(node, {}) if names is None else names
    checks = [_is_moderate(array(name)) for name in dict.fromkeys(names)]
    return lambda: all(check() for check in checks)


def _is_moderate(data: NDArray[Any]) -> Callable[[], bool]:
    return lambda: _largest(data) < MODERATE


def _data(node: TypedNode, constants: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of the node's floating-point inputs and operands that are not constant."""
    pairs = zip((*node.node.inputs, *node.node.operands), (*node.inputs, *node.operands), strict=True)
    return [name for name, t in pairs if t is not None and t.value is None and _is_float(t) and name not in constants]


def _bounds_of(node: TypedNode, bound: Bound) -> tuple[float, float]:
    """Two bounds of absolute values: of everything computed up to the last clip, and of the result."""
    value = _head(node, bound)
    peak, seen = 0.0, value
    operands = zip(node.node.operands, node.operands, strict=True)
    for post_op in node.post_ops:
        if _is_clip(post_op):
            peak = max(peak, seen)
        if isinstance(post_op, Eltwise):
            value = _times(abs(post_op.scale), _eltwise(value, post_op))
        else:
            name, operand = next(operands)
            is_div = isinstance(post_op, Binary) and post_op.algorithm == "div"
            value = _times(value, _reciprocal(operand)) if is_div else _step(value, post_op, bound(name))
        seen = max(seen, value)
    return peak, value


def _head(node: TypedNode, bound: Bound) -> float:
    """The bound of the operator's own result. Infinity where it may turn moderate numbers into NaN, or declares no magnitude."""
    pairs = zip(node.node.inputs, node.inputs, strict=True)
    sizes = [bound(name) if _is_float(t) else math.inf if t.dtype.is_float else 0.0 for name, t in pairs if t is not None]
    op = node.op
    if op.is_view:
        return sizes[0]
    if op.magnitude == "sum":
        return sum(sizes)
    if op.magnitude == "sum_of_integers":
        return _times(2.0**31, *[size for size in sizes if size])  # 0 is that of integers
    if op.magnitude == "product":
        return _times(*sizes)
    if op.magnitude == "quotient":
        return _times(sizes[0], _reciprocal(node.inputs[1]))
    if op.magnitude == "sum_of_products" and node.inputs[1] is not None:
        scale = max(1.0, abs(getattr(op, "alpha", 1.0)), abs(getattr(op, "beta", 1.0)))
        return _times(scale, _times(node.inputs[1].size, sizes[0], sizes[1]) + sum(sizes[2:]))
    return math.inf


def _reciprocal(tensor: TensorType | None) -> float:
    """1 / |x| of one known number; infinity for others, which may hold 0."""
    number = 0.0 if tensor is None or tensor.value is None or tensor.size != 1 else abs(float(tensor.value.item()))
    return 1 / number if number else math.inf


def _step(value: float, post_op: Sum | Prelu | Binary, operand: float) -> float:
    if isinstance(post_op, Sum):
        return value + _times(abs(post_op.scale), operand)
    if isinstance(post_op, Prelu):
        return _times(value, max(1.0, operand))
    found = {"add": value + operand, "sub": value + operand, "rsub": value + operand, "mul": _times(value, operand)}
    return found.get(post_op.algorithm, math.inf)


def _eltwise(value: float, post_op: Eltwise) -> float:
    if post_op.algorithm in _NO_LARGER:
        return _times(value, max(1.0, abs(post_op.alpha))) if post_op.algorithm == "relu" else value
    if post_op.algorithm in _WITHIN_ONE:
        return 1.0 if value < math.inf else value
    if post_op.algorithm == "round":
        return value + 0.5
    if post_op.algorithm == "linear":
        return _times(abs(post_op.alpha), value) + abs(post_op.beta)
    return max(abs(post_op.alpha), abs(post_op.beta)) if _is_clip(post_op) else math.inf


def _is_clip(post_op: PostOp) -> bool:
    return isinstance(post_op, Eltwise) and post_op.algorithm == "clip"


def _is_float(tensor: TensorType) -> bool:
    return tensor.dtype in (DType.FLOAT32, DType.BFLOAT16)


def _largest_constant(data: NDArray[Any]) -> float:
    """As `_largest`, kept: plans for several shapes share their weights, of which reading takes longer than all else here."""
    reference, found = _KNOWN.get(id(data)) or (None, 0.0)
    if reference is None or reference() is not data:  # another array may have got the id of one that was freed
        found = _largest(data)
        _KNOWN.put(id(data), (weakref.ref(data), found))
    return found


def _largest(data: NDArray[Any]) -> float:
    """The largest absolute value of a float32 or bfloat16 array; infinity for NaN."""
    if not data.size:
        return 0.0
    # As integers the bits of numbers of one sign are in the order of their sizes, NaN the largest; bfloat16 is half a float32.
    low = 8 * (4 - data.dtype.itemsize)
    signed, bits = (np.int32, np.uint32) if not low else (np.int16, np.uint16)
    size = max(int(data.view(signed).max()) << low, (int(data.view(bits).max()) << low) - (1 << 31), 0)
    found = float(np.uint32(size).view(np.float32))
    return found if found < math.inf else math.inf


def _times(*factors: float) -> float:
    """The product, infinite where a factor is, though another be 0."""
    return math.inf if math.inf in factors else math.prod(factors)
