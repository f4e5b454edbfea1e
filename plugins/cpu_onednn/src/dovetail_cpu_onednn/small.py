"""Activations of few elements by NumPy, where the primitive comes with a search for NaN and takes longer than both.

oneDNN writes code for each slope and bound, 0.1 ms, so different nodes share no primitive. Us of the primitive and of NumPy, 128
elements: ReLU 1.55, 0.86; LeakyRelu 1.55, 1.09; one of a thousand LeakyRelu of different slopes, each with a sum, whose code does
not stay in the cache, 8.1, 1.6. Without that search NumPy gains nothing: in the body of a loop, between products of large
matrices, products and sums of 400 elements take 0.5 us longer by it, though 0.2 less in a loop of their own.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from dovetail.device import Accepted, Binary, DType, Eltwise, LayerConfig, PostOp, Reason, Refusal, Sum, TypedNode
from dovetail_cpu_onednn.elementwise import LOSES_NAN, chain_of
from dovetail_cpu_onednn.kernel import Refused
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, filling, quiet

__all__ = ["SmallKernel"]

MOST = 1024
"""The largest number of elements."""

FEW = 4
"""How many calls of NumPy take no longer."""

_UFUNCS: dict[str, np.ufunc] = {"abs": np.abs, "exp": np.exp, "sqrt": np.sqrt, "square": np.square, "tanh": np.tanh}

_BINARY: dict[str, tuple[np.ufunc, bool]] = {
    "add": (np.add, False),
    "sub": (np.subtract, False),
    "rsub": (np.subtract, True),
    "mul": (np.multiply, False),
    "div": (np.divide, False),
    "rdiv": (np.divide, True),
    "max": (np.maximum, False),
    "min": (np.minimum, False),
}
"""Algorithm -> ufunc, and whether the operand comes first."""


class SmallKernel(PythonKernel):
    """An operator that is a chain of post-ops, with the node's own behind it."""

    name = "ufuncs"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        tensors = [t for t in (*node.inputs, *node.outputs, *node.operands) if t is not None]
        if any(t.size > MOST for t in tensors) or len(node.post_ops) >= FEW:
            return Refusal(Reason.SHAPE, f"accepted: {MOST} elements, {FEW} steps")
        try:
            steps = _steps(node)
        except Refused as answer:
            return answer.refusal
        if any(t.dtype is not DType.FLOAT32 for t in tensors):
            return Refusal(Reason.DTYPE, "accepted: float32")
        if any(t.rank > node.outputs[0].rank for t in tensors):
            return Refusal(Reason.SHAPE, "an input of more dimensions than the result")
        if not any(isinstance(step, Eltwise) and step.algorithm in LOSES_NAN for step, _ in steps):
            return Refusal(Reason.OPERATOR, "a primitive needs no search for NaN")
        calls = [_calls(step) for step, _ in steps]
        if 0 in calls or sum(calls) > FEW:
            return Refusal(Reason.OPERATOR, f"accepted: {FEW} calls")
        return Accepted(self.name)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig.elementwise(node),)

    def in_place(self, node: TypedNode) -> Sequence[str]:
        return (node.node.inputs[chain_of(node)[0]],)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        src, dst = array(node.node.inputs[chain_of(node)[0]]), array(node.node.outputs[0])
        calls: list[Callable[[], object]] = []
        for step, operand in _steps(node):
            calls += _bound(step, src, array(operand) if operand else dst, dst)
            src = dst
        zeros = filling(dst, node.outputs[0])
        calls += [] if zeros is None else [zeros]

        def run() -> None:
            for call in calls:
                call()

        return (quiet(calls[0]) if len(calls) == 1 else run,)


def _steps(node: TypedNode) -> list[tuple[PostOp, str]]:
    """The post-ops, each with the name of its operand or `""`. Raises `Refused`."""
    return [(p, "" if isinstance(p, Eltwise) else p.operand) for p in (*chain_of(node)[1], *node.post_ops)]


def _calls(step: PostOp) -> int:
    """How many calls a step takes; 0 for one that is left to others."""
    if isinstance(step, Binary):
        return int(step.algorithm in _BINARY)
    if isinstance(step, Sum):
        return int((step.scale, step.zero_point) == (1, 0))
    if not isinstance(step, Eltwise) or step.scale != 1:
        return 0
    if step.algorithm == "relu":
        return 1 if step.alpha == 0 else 2 * (0 < step.alpha <= 1)
    return {"clip": 2, "linear": 2}.get(step.algorithm, int(step.algorithm in _UFUNCS))


def _bound(step: PostOp, src: Array, operand: Array, dst: Array) -> Iterator[Callable[[], object]]:
    """The calls by which a step comes from `src`, which may be `dst`, to `dst`."""
    if isinstance(step, Binary):
        ufunc, is_first = _BINARY[step.algorithm]
        yield _into(ufunc, *((operand, src) if is_first else (src, operand)), out=dst)
    elif not isinstance(step, Eltwise):
        yield _into(np.add, src, operand, out=dst)
    elif step.algorithm in _UFUNCS:
        yield _into(_UFUNCS[step.algorithm], src, out=dst)
    elif step.algorithm == "relu" and step.alpha:
        scaled = np.empty_like(dst)
        yield _into(np.multiply, src, _number(step.alpha), out=scaled)
        yield _into(np.maximum, src, scaled, out=dst)
    elif step.algorithm == "relu":
        yield _into(np.maximum, src, _number(0), out=dst)
    else:
        first, second = (np.maximum, np.minimum) if step.algorithm == "clip" else (np.multiply, np.add)
        yield _into(first, src, _number(step.alpha), out=dst)
        yield _into(second, dst, _number(step.beta), out=dst)


def _into(ufunc: np.ufunc, *operands: Array, out: Array) -> Callable[[], object]:
    """By position takes 0.15 us less, where NumPy 2.4 still has it."""
    return partial(ufunc, *operands, out=out) if ufunc in (np.maximum, np.minimum) else partial(ufunc, *operands, out)


def _number(value: float) -> Array:
    """As an array, which ufuncs take 0.3 us faster than a scalar. Too large becomes infinite."""
    with np.errstate(over="ignore"):
        return np.array(value, np.float32)
