"""GRU and LSTM: what comes from the inputs in one product for many steps, then a few calls a step in the same buffers."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import ClassVar, TypeVar

import numpy as np

from dovetail.device import Reason, Refusal, TensorType, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Array, Launch, Spec, constant, copy, fill
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM

__all__ = ["StepsKernel", "product", "sigmoid"]

T = TypeVar("T")

BUDGET = 1 << 22
"""Bytes of the products of the inputs that are made at once."""

_BIAS, _LENGTHS, _STATES, _PEEPHOLES = 3, 4, 5, 7


class StepsKernel(NumpyKernel):
    """Base: everything but the equations of a step."""

    name = "steps"
    gates: ClassVar[int]
    states: ClassVar[int]

    def refuse(self, node: TypedNode) -> Refusal | None:
        op = node.op
        assert isinstance(op, GRU | LSTM)
        names = op.activations or op.defaults
        # Names beyond those that the directions need mean nothing.
        if any(name.lower() != wanted.lower() for name, wanted in zip(names, op.defaults * op.directions, strict=False)):
            return Refusal(Reason.ATTRIBUTE, f"activations {', '.join(names)}; accepted: {', '.join(op.defaults)}")
        if op.clip is not None or getattr(op, "input_forget", False):
            return Refusal(Reason.ATTRIBUTE, "clip or input_forget")
        if _given(node.inputs, _PEEPHOLES) is not None:
            return Refusal(Reason.OPERATOR, "peepholes; accepted: X, W, R, B, lengths of sequences and initial states")
        return refuse_dtypes([*node.inputs[:_LENGTHS], *node.inputs[_STATES:]])

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        op, x, r = node.op, _required(node, 0), _required(node, 2)
        assert isinstance(op, GRU | LSTM)
        dtype, (batch, time), hidden = x.dtype.numpy, x.dims[:2] if op.layout else x.dims[1::-1], r.dims[2]
        width = self.gates * hidden
        steps = max(1, min(time, BUDGET // max(1, batch * width * dtype.itemsize)))
        products = (batch, steps, width) if op.layout else (steps, batch, width)
        return ((products, dtype), ((width,), dtype), ((batch, width), dtype), *[((batch, hidden), dtype)] * (self.states + 1))

    def prepare(self, node: TypedNode) -> tuple[Array | None, Array | None]:
        """W and R turned, where they are constants: BLAS takes up to five times as long from transposed views of few rows."""
        w, r = _required(node, 1).value, _required(node, 2).value
        return _turned(w), _turned(r)

    def bind(self, call: Call) -> Iterable[Launch]:
        op, lengths = call.node.op, _given(call.inputs, _LENGTHS)
        assert isinstance(op, GRU | LSTM)
        layout, backwards = bool(op.layout), op.direction == "reverse"
        found = [launch for d in range(op.directions) for launch in self._direction(call, d, backwards or d == 1, layout)]
        if lengths is None or not lengths.size:
            return found
        return [_for_whole_sequences(found, partial(self._by_lengths, call, lengths), lengths, _time(call.node))]

    def _direction(self, call: Call, d: int, backwards: bool, batch_first: bool) -> Iterator[Launch]:
        products, bias, gates, *buffers = call.scratch
        places = iter(call.outputs)
        y, *last = (next(places) if name else None for name in (*call.node.node.outputs, "", "")[: 1 + self.states])
        state, spare = buffers[:-1], buffers[-1]
        for index, buffer in enumerate(state):
            initial = _given(call.inputs, _STATES + index)
            yield fill(buffer, 0) if initial is None else copy(buffer, initial[:, d] if batch_first else initial[d])
        given = _given(call.inputs, _BIAS)
        of_x, of_h = (None, None) if given is None else np.split(given[d], 2)
        if of_x is not None and of_h is not None:
            yield self.bias(of_x, of_h, bias)
        turned = zip(call.state, (call.input(1), call.input(2)), strict=True)
        weights, recurrent = (given[d].T if made is None else made[d] for made, given in turned)
        x = call.input(0)
        for first, count in _parts(x.shape[1 if batch_first else 0], products.shape[1 if batch_first else 0], backwards):
            where = (slice(None), slice(first, first + count)) if batch_first else (slice(first, first + count),)
            part = products[:, :count] if batch_first else products[:count]
            yield _product(x[where], weights, part)
            if given is not None:
                yield partial(np.add, part, bias, part)
            results = None if y is None else y[(*where, d)] if batch_first else y[first : first + count, d]
            order = slice(None, None, -1 if backwards else 1)
            steps = (part.swapaxes(0, 1) if batch_first else part)[order]
            written = None if results is None else (results.swapaxes(0, 1) if batch_first else results)[order]
            yield self.steps(steps, written, state, recurrent, of_h, gates, spare, call)
        for buffer, dst in zip(state, last, strict=True):
            if dst is not None:
                yield copy(dst[:, d] if batch_first else dst[d], buffer)

    def _by_lengths(self, call: Call, lengths: Array) -> None:
        """Several lengths: the longest sequences first, so that each step computes the first ones, as many as are that long."""
        op, (_, bias, gates, *_) = call.node.op, call.scratch
        assert isinstance(op, GRU | LSTM)
        order = np.argsort(-lengths, kind="stable")
        x = call.input(0).swapaxes(0, 1) if op.layout else call.input(0)
        segments = _segments(np.minimum(lengths[order], len(x)))
        places = iter(call.outputs)
        results = [next(places) if name else None for name in (*call.node.node.outputs, "", "")[: 1 + self.states]]
        # Time first, the directions second in Y, first in states.
        orders = (1, 2, 0, 3), (1, 0, 2)
        y, *last = (r if r is None or not op.layout else r.transpose(orders[i > 0]) for i, r in enumerate(results))
        rows = np.ascontiguousarray(x[:, order]).reshape(-1, x.shape[2])
        for d in range(op.directions):
            step = -1 if op.direction == "reverse" or d == 1 else 1
            w, recurrent = (
                g[d].T if made is None else made[d] for made, g in zip(call.state, map(call.input, (1, 2)), strict=True)
            )
            xs, of_h, state = (rows @ w).reshape(*x.shape[:2], -1), None, []
            if (given := _given(call.inputs, _BIAS)) is not None:
                of_x, of_h = np.split(given[d], 2)
                self.bias(of_x, of_h, bias)()
                xs += bias
            ys = np.zeros((*x.shape[:2], recurrent.shape[0]), x.dtype)
            for index in range(self.states):
                initial = _given(call.inputs, _STATES + index)
                state.append(np.zeros_like(ys[0]) if initial is None else (initial[:, d] if op.layout else initial[d])[order])
            for first, end, count in segments[::step]:
                part = xs[first:end, :count][::step], ys[first:end, :count][::step], [s[:count] for s in state]
                self.steps(*part, recurrent, of_h, gates[:count], np.empty_like(state[0][:count]), call)()
            if y is not None:
                y[:, d, order] = ys
            for dst, found in zip(last, state, strict=True):
                if dst is not None:
                    dst[d, order] = found

    def bias(self, of_x: Array, of_h: Array, out: Array) -> Launch:
        """The sum of both biases, as far as it can be added to the products of the inputs."""
        return partial(np.add, of_x, of_h, out)

    @abstractmethod
    def steps(
        self,
        xs: Array,
        ys: Array | None,
        state: Sequence[Array],
        R: Array,
        Rb: Array | None,
        gates: Array,
        spare: Array,
        call: Call,
    ) -> Launch:
        """All steps over `xs` [steps, batch, gates * hidden], which update `state` and write the hidden one to `ys`.

        `R` is [hidden, gates * hidden]. `gates` and `spare` are work buffers, as wide as a step of `xs` and as a state.
        """


def _time(node: TypedNode) -> int:
    op = node.op
    assert isinstance(op, GRU | LSTM)
    return _required(node, 0).dims[1 if op.layout else 0]


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


def product(x: Array, w: Array, out: Array) -> Launch:
    """out = x @ w, of contiguous matrices. `dot` of a row takes 0.4 us less than `matmul`, but refuses what it would convert."""
    return partial(np.dot, x, w, out) if len(x) == 1 and w.flags.c_contiguous else partial(np.matmul, x, w, out)


def sigmoid(x: Array) -> Sequence[Launch]:
    """x = 1 / (1 + exp(-x))"""
    one = constant(1, x)
    return (
        partial(np.negative, x, x),
        partial(np.exp, x, x),
        partial(np.add, x, one, x),
        partial(np.reciprocal, x, x),
    )


def _turned(weights: Array | None) -> Array | None:
    return None if weights is None else np.ascontiguousarray(weights.swapaxes(1, 2))


def _product(x: Array, w: Array, out: Array) -> Launch:
    """out = x @ w: of one matrix where x is one, else of one for each item of the batch."""
    if x.flags.c_contiguous and out.flags.c_contiguous:
        rows = math.prod(x.shape[:2])
        return partial(np.matmul, x.reshape(rows, x.shape[2]), w, out.reshape(rows, out.shape[2]))
    return partial(np.matmul, x, w, out)


def _parts(time: int, steps: int, backwards: bool) -> Iterator[tuple[int, int]]:
    """First step and number of steps of each part, in the order in which they run."""
    found = [(first, min(steps, time - first)) for first in range(0, time, steps)]
    return reversed(found) if backwards else iter(found)


def _given(values: Sequence[T | None], index: int) -> T | None:
    return values[index] if index < len(values) else None


def _required(node: TypedNode, index: int) -> TensorType:
    tensor = node.inputs[index]
    assert tensor is not None
    return tensor
