"""RNN, GRU and LSTM: what comes from the inputs in one product for many steps, then a few calls a step for both directions.

Each direction is computed in the order of its own time, so that step i of both is one slice of every work buffer.
"""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Array, Launch, Spec, copy, fill
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.rnn import RNN

__all__ = ["Product", "StepsKernel", "Weights", "product_of"]

T = TypeVar("T")

BUDGET = 1 << 22
"""Bytes of the products of the inputs that are made at once."""

_BIAS, _LENGTHS, _STATES, _PEEPHOLES = 3, 4, 5, 7

Product = Callable[[Array, Array, Array], object]


@dataclass(frozen=True, slots=True)
class Weights:
    """`w` [directions, input size, gates * hidden], `r` [directions, hidden or more, gates * hidden] and `b` as wide as both.

    Rows of `r` beyond the hidden size are multiplied by ones.
    """

    w: Array
    r: Array
    b: Array | None


class StepsKernel(NumpyKernel):
    """Base: everything but the equations of a step."""

    name = "steps"
    gates: ClassVar[int]
    states: ClassVar[int]
    activations: ClassVar[tuple[tuple[str, ...], ...]]
    """Those accepted, in lower case: a tuple for the activations of a direction each."""
    work: ClassVar[tuple[int, ...]] = ()
    """The widths of the work buffers, in hidden sizes."""

    def refuse(self, node: TypedNode) -> Refusal | None:
        op = _operator(node)
        names = tuple(name.lower() for name in op.activations or op.defaults * op.directions)
        # Names beyond those that the directions need mean nothing.
        if names[: len(op.defaults) * op.directions] not in [one * op.directions for one in self.activations]:
            accepted = " or ".join(", ".join(one) for one in self.activations)
            return Refusal(Reason.ATTRIBUTE, f"activations {', '.join(names)}; accepted: {accepted}, the same in all directions")
        if op.clip is not None or getattr(op, "input_forget", False):
            return Refusal(Reason.ATTRIBUTE, "clip or input_forget")
        if node.optional(_PEEPHOLES) is not None:
            return Refusal(Reason.OPERATOR, "peepholes; accepted: X, W, R, B, lengths of sequences and initial states")
        return refuse_dtypes([*node.inputs[:_LENGTHS], *node.inputs[_STATES:]])

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        op, x, r = _operator(node), node.given(0), node.given(2)
        dtype, (batch, time), hidden = x.dtype.numpy, x.dims[:2] if op.layout else x.dims[1::-1], r.dims[2]
        width, sides = self.gates * hidden, _sides(op)
        steps = max(1, min(time, BUDGET // max(1, op.directions * batch * width * dtype.itemsize)))
        shapes = [
            (steps * batch, width),
            (steps, *sides, batch, width),
            (steps + 1, *sides, batch, hidden + self.ones(node)),
            *((*sides, batch, count * hidden) for count in self.work),
        ]
        return [(shape, dtype) for shape in shapes]

    def prepare(self, node: TypedNode) -> Weights | None:
        """The weights in the order of BLAS, which takes up to five times as long from transposed views of few rows."""
        w, r, b = node.given(1), node.given(2), node.optional(_BIAS)
        if w.value is None or r.value is None or (b is not None and b.value is None):
            return None
        return self.weights(node, w.value, r.value, None if b is None else b.value)

    def bind(self, call: Call) -> Iterable[Launch]:
        lengths = call.optional(_LENGTHS)
        whole = [*self._launches(call, call.state)] if call.state is not None else [partial(self._with_weights, call)]
        if lengths is None or not lengths.size:
            return whole
        time = call.input(0).shape[1 if _operator(call.node).layout else 0]
        return [_for_whole_sequences(whole, partial(self._by_lengths, call, lengths), lengths, time)]

    def _with_weights(self, call: Call) -> None:
        for launch in self._launches(call, self._weights(call)):
            launch()

    def _weights(self, call: Call) -> Weights:
        found: Weights | None = call.state
        return found or self.weights(call.node, call.input(1), call.input(2), call.optional(_BIAS))

    def _launches(self, call: Call, weights: Weights) -> Iterator[Launch]:
        op, (rows, xs, hs, *work) = _operator(call.node), call.scratch
        x, hidden = _time_first(call.input(0), op), call.input(2).shape[2]
        y, *last = _results(call, 1 + self.states)
        sides = [(d, _side(op, d), op.direction == "reverse" or d == 1) for d in range(op.directions)]
        given = [hs[0][..., :hidden], *self.kept(work, hidden)]
        if hs.shape[-1] > hidden:
            yield fill(hs[..., hidden:], 1)
        for index, state in enumerate(given):
            initial = call.optional(_STATES + index)
            for d, side, _ in sides:
                yield fill(state[side], 0) if initial is None else copy(state[side], initial[:, d] if op.layout else initial[d])
        recurrent, count = weights.r if _sides(op) else weights.r[0], 0
        for first in range(0, len(x), len(xs)):
            if first:
                yield copy(hs[0], hs[count])
            count = min(len(xs), len(x) - first)
            for d, side, is_reverse in sides:
                yield from _products(_own(x, is_reverse, first, count), weights, d, xs[:count][:, *side], rows, is_reverse)
            yield self.steps(call.node, xs[:count], hs[: count + 1], recurrent, work)
            if y is not None:
                for d, side, is_reverse in sides:
                    found = _turned(hs[1 : count + 1][:, *side], is_reverse)
                    yield copy(_own(y[:, d], is_reverse, first, count), found[..., :hidden])
        for found, dst in zip([hs[count][..., :hidden], *given[1:]], last, strict=True):
            if dst is not None:
                for d, side, _ in sides:
                    yield copy(dst[d], found[side])

    def _by_lengths(self, call: Call, lengths: Array) -> None:
        """Several lengths: the longest sequences first, so that each step computes the first ones, as many as are that long."""
        op, weights, x, hidden = _operator(call.node), self._weights(call), call.input(0), call.input(2).shape[2]
        x = _time_first(x, op)
        lengths = lengths.clip(0, len(x))
        order = np.argsort(-lengths, kind="stable")
        lengths = lengths[order]
        steps, places = int(lengths.max()), np.arange(len(order))
        own = np.arange(steps)[:, None]
        xs = np.empty((steps, *_sides(op), len(order), weights.r.shape[2]), x.dtype)
        hs = np.ones((steps + 1, *_sides(op), len(order), weights.r.shape[1]), x.dtype)
        hs[..., :hidden] = 0
        work = [np.empty((*_sides(op), len(order), count * hidden), x.dtype) for count in self.work]
        given = [hs[0][..., :hidden], *self.kept(work, hidden)]
        rows = np.ascontiguousarray(x).reshape(-1, x.shape[2])
        y, *last = _results(call, 1 + self.states)
        sides = [(d, _side(op, d), op.direction == "reverse" or d == 1) for d in range(op.directions)]
        for d, side, is_reverse in sides:
            products = (rows @ weights.w[d]).reshape(*x.shape[:2], -1)
            found = products[np.maximum(lengths - 1 - own, 0) if is_reverse else own, order]
            xs[:, *side] = found if weights.b is None else found + weights.b[d]
            for index, state in enumerate(given):
                initial = call.optional(_STATES + index)
                state[side] = 0 if initial is None else (initial[:, d] if op.layout else initial[d])[order]
        recurrent = weights.r if _sides(op) else weights.r[0]
        for first, end, count in _segments(lengths):
            some: Any = (..., slice(None, count), slice(None))
            self.steps(call.node, xs[first:end][some], hs[first : end + 1][some], recurrent, [one[some] for one in work])()
        for d, side, is_reverse in sides:
            states = hs[:, *side][..., :hidden]
            if y is not None:
                y[:, d] = 0
                alive = np.nonzero(own < lengths)
                steps_of, sequences = alive[0], order[alive[1]]
                y[lengths[alive[1]] - 1 - steps_of if is_reverse else steps_of, d, sequences] = states[1:][alive]
            for dst, found in zip(last, [states[lengths, places], *(state[side] for state in given[1:])], strict=True):
                if dst is not None:
                    dst[d, order] = found

    def ones(self, node: TypedNode) -> int:
        """Columns of ones beside the hidden states, for biases that only the product of these may add."""
        return 0

    def kept(self, work: Sequence[Array], hidden: int) -> Sequence[Array]:
        """The states other than the hidden one: parts of the work buffers."""
        return ()

    def weights(self, node: TypedNode, w: Array, r: Array, b: Array | None) -> Weights:
        """Turned, with the sum of both biases."""
        turned = [np.ascontiguousarray(one.swapaxes(1, 2)) for one in (w, r)]
        return Weights(turned[0], turned[1], None if b is None else np.add(*np.split(b, 2, axis=1)))

    @abstractmethod
    def steps(self, node: TypedNode, xs: Array, hs: Array, r: Array, work: Sequence[Array]) -> Launch:
        """All steps over `xs` [steps, (2,) batch, gates * hidden], from hidden states `hs`[i] to `hs`[i + 1].

        `hs` is [steps + 1, (2,) batch, hidden and ones], `r` [(2,) hidden and ones, gates * hidden].
        """


def _operator(node: TypedNode) -> RNN | GRU | LSTM:
    assert isinstance(node.op, RNN | GRU | LSTM)
    return node.op


def _sides(op: RNN | GRU | LSTM) -> tuple[int, ...]:
    """The axis of directions in work buffers: none for one, because `dot` of a row takes 0.4 us less than `matmul`."""
    return (2,) if op.directions == 2 else ()


def _side(op: RNN | GRU | LSTM, d: int) -> Any:
    """The index of a direction among `_sides`."""
    return (d,) if op.directions == 2 else ()


def _time_first(array: Array, op: RNN | GRU | LSTM) -> Array:
    return array.swapaxes(0, 1) if op.layout else array


def _results(call: Call, count: int) -> list[Array | None]:
    """Y as [time, directions, batch, hidden] and the last states as [directions, batch, hidden]; None where not asked for."""
    places = iter(call.outputs)
    found = [next(places) if name else None for name in (*call.node.node.outputs, "", "")[:count]]
    if not _operator(call.node).layout:
        return found
    return [a if a is None else a.transpose((1, 2, 0, 3) if a.ndim == 4 else (1, 0, 2)) for a in found]


def _turned(array: Array, is_reverse: bool) -> Array:
    return array[::-1] if is_reverse else array


def _own(array: Array, is_reverse: bool, first: int, count: int) -> Array:
    """The steps of a direction from `first` on in its own time, in the order of memory."""
    start = len(array) - first - count if is_reverse else first
    return array[start : start + count]


def _products(x: Array, weights: Weights, d: int, xs: Array, rows: Array, is_reverse: bool) -> Iterator[Launch]:
    """xs = x @ w + b, in the direction's own time: of one matrix, at once where `xs` is one."""
    count, batch, size = x.shape
    w, b = weights.w[d], None if weights.b is None else weights.b[d]
    if xs.flags.c_contiguous and not is_reverse and x.flags.c_contiguous:
        flat = xs.reshape(count * batch, xs.shape[2])
        yield partial(np.matmul, x.reshape(count * batch, size), w, flat)
        if b is not None:
            yield partial(np.add, flat, b, flat)
        return
    if x.flags.c_contiguous:
        made = rows[: count * batch]
        yield partial(np.matmul, x.reshape(count * batch, size), w, made)
        found = made.reshape(count, batch, xs.shape[2])
    else:
        made = rows[: count * batch].reshape(batch, count, xs.shape[2])
        yield partial(np.matmul, x.swapaxes(0, 1), w, made)
        found = made.swapaxes(0, 1)
    found = _turned(found, is_reverse)
    yield copy(xs, found) if b is None else partial(np.add, found, b, xs)


def _for_whole_sequences(launches: Sequence[Launch], other: Launch, lengths: Array, time: int) -> Launch:
    """Makes the launches where all sequences are as long as the time, else the other one."""

    def run() -> None:
        for launch in launches if lengths.min() >= time else (other,):
            launch()

    return run


def _segments(counts: Array) -> list[tuple[int, int, int]]:
    """First step, last step and number of sequences that are longer, of falling lengths, for as long as that stays."""
    ends = np.unique(counts[counts > 0]).tolist()
    return [(start, end, int((counts > start).sum())) for start, end in zip([0, *ends], ends, strict=False)]


def product_of(h: Array) -> Product:
    """The product of states: `dot` of a row takes 0.4 us less than `matmul`."""
    return np.dot if h.ndim == 2 and len(h) == 1 else np.matmul
