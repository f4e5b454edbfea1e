"""How large values can become, which tells where a fused clip, that loses NaN, cannot meet any."""

import math
from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Binary, DType, Eltwise, PostOp, Prelu, Sum, TensorType, TypedNode

__all__ = ["USUAL", "clips", "is_usual", "keeps_finite", "watched"]

LARGEST = 1e37
"""Sums of numbers whose absolute values add up to less stay finite in float32, in whatever order and rounding."""

USUAL = 1e12
"""What data is looked at for where nothing else is known: no product of two such matrices comes near `LARGEST`."""

Bound = Callable[[str], float]
"""The largest absolute value that a value has, by its name; infinity where there may be NaN too."""

_NO_LARGER = frozenset({"abs", "gelu_erf", "gelu_tanh", "hardswish", "relu", "swish"})
_WITHIN_ONE = frozenset({"logistic", "tanh"})


def clips(node: TypedNode) -> bool:
    """Whether there is a clip among the post-ops."""
    return any(_is_clip(p) for p in node.post_ops)


def keeps_finite(node: TypedNode) -> bool:
    """Whether no clip in the node's chain meets infinity or NaN as long as all its data is `USUAL`."""
    return _reach(node, lambda _: USUAL)[0] < LARGEST


def watched(nodes: Sequence[TypedNode], constants: Mapping[str, NDArray[Any]]) -> dict[str, tuple[str, ...] | None]:
    """For each node with a clip, nodes in order of execution: the values that have to be looked at for whether they are `USUAL`.

    There are none where weights and the limits of former clips tell that already, provided that all looks before found usual
    values. None instead of names: constants are so large that a look does not help.
    """
    found: dict[str, tuple[str, ...] | None] = {}
    if not any(clips(node) for node in nodes):
        return found
    bounds: MutableMapping[str, float] = {}

    def bound(name: str) -> float:
        if name not in bounds:
            bounds[name] = _largest(constants[name]) if name in constants else math.inf
        return bounds[name]

    for node in nodes:
        peak, last = _reach(node, bound)
        if clips(node):
            unknown = tuple(name for name in _data(node, constants) if bound(name) > USUAL) if peak >= LARGEST else ()
            bounds.update(dict.fromkeys(unknown, USUAL))
            peak, last = _reach(node, bound)
            found[node.name] = unknown if peak < LARGEST else None
        bounds[node.node.outputs[0]] = last
    return found


def is_usual(node: TypedNode, names: Iterable[str] | None, array: Callable[[str], NDArray[Any]]) -> Callable[[], bool]:
    """A call that tells whether the values, by default all that the node computes with, are `USUAL`. NaN is not."""
    names = _data(node, {}) if names is None else names
    looks = [_is_usual(array(name)) for name in dict.fromkeys(names)]
    return lambda: all(look() for look in looks)


def _is_usual(data: NDArray[Any]) -> Callable[[], bool]:
    return lambda: _largest(data) < USUAL


def _data(node: TypedNode, constants: Mapping[str, NDArray[Any]]) -> list[str]:
    """The names of what the node computes with that is not constant, and of floating point."""
    pairs = zip((*node.node.inputs, *node.node.operands), (*node.inputs, *node.operands), strict=True)
    return [name for name, t in pairs if t is not None and t.value is None and _is_float(t) and name not in constants]


def _reach(node: TypedNode, bound: Bound) -> tuple[float, float]:
    """Bounds of the absolute values: of all that is computed up to the last clip, and of the result."""
    value = _head(node, bound)
    peak, seen = 0.0, value
    operands = iter(node.node.operands)
    for post_op in node.post_ops:
        if _is_clip(post_op):
            peak = max(peak, seen)
        value = _step(value, post_op, 0.0 if isinstance(post_op, Eltwise) else bound(next(operands)))
        seen = max(seen, value)
    return peak, value


def _head(node: TypedNode, bound: Bound) -> float:
    """The operator itself. Infinity where it may make NaN of usual numbers, or is of others' making."""
    pairs = zip(node.node.inputs, node.inputs, strict=True)
    sizes = [bound(name) if _is_float(t) else math.inf if t.dtype.is_float else 0.0 for name, t in pairs if t is not None]
    op = node.op
    if op.is_view:
        return sizes[0]
    if op.magnitude == "sum":
        return sum(sizes)
    if op.magnitude == "product":
        return _times(*sizes)
    if op.magnitude == "sum_of_products" and node.inputs[1] is not None:
        scale = max(1.0, abs(getattr(op, "alpha", 1.0)), abs(getattr(op, "beta", 1.0)))
        return _times(scale, _times(node.inputs[1].size, sizes[0], sizes[1]) + sum(sizes[2:]))
    return math.inf


def _step(value: float, post_op: PostOp, operand: float) -> float:
    if isinstance(post_op, Sum):
        return value + _times(abs(post_op.scale), operand)
    if isinstance(post_op, Prelu):
        return _times(value, max(1.0, operand))
    if isinstance(post_op, Binary):
        found = {"add": value + operand, "sub": value + operand, "rsub": value + operand, "mul": _times(value, operand)}
        return found.get(post_op.algorithm, math.inf)
    return _times(abs(post_op.scale), _eltwise(value, post_op))


def _eltwise(value: float, post_op: Eltwise) -> float:
    if post_op.algorithm in _NO_LARGER:
        return _times(value, max(1.0, abs(post_op.alpha))) if post_op.algorithm == "relu" else value
    if post_op.algorithm in _WITHIN_ONE:
        return 1.0 if value < math.inf else value
    if post_op.algorithm == "linear":
        return _times(abs(post_op.alpha), value) + abs(post_op.beta)
    return max(abs(post_op.alpha), abs(post_op.beta)) if _is_clip(post_op) else math.inf


def _is_clip(post_op: PostOp) -> bool:
    return isinstance(post_op, Eltwise) and post_op.algorithm == "clip"


def _is_float(tensor: TensorType) -> bool:
    return tensor.dtype in (DType.FLOAT32, DType.BFLOAT16)


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
