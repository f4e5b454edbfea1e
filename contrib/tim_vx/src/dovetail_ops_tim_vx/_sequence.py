"""Shared by the sequence operators: taking time steps apart, putting them together, and the unrolled RNN."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dovetail.op import DType, GraphBuilder, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.squeeze import Squeeze
from dovetail_ops_onnx.unsqueeze import Unsqueeze
from dovetail_ops_tim_vx._shapes import check_rank, check_shapes
from dovetail_ops_tim_vx.rnn_cell import RNNCell

__all__ = ["RnnWay", "Sequences", "check_rnn_way", "concat", "run_rnn", "split", "squeeze", "zeros"]


@dataclass(frozen=True)
class Sequences:
    """The geometry of an input: [time, batch, size] when `time_major`, else [batch, time, size]."""

    time: int
    batch: int
    size: int
    dtype: DType
    time_major: bool

    @staticmethod
    def of(name: str, x: TensorType | None, time_major: bool) -> "Sequences":
        """The geometry of input `name`. Raises `ShapeError` unless it has three dimensions."""
        assert x is not None
        dims = ("time", "batch", "input_size") if time_major else ("batch", "time", "input_size")
        first, second, size = check_rank(name, x, dims)
        time, batch = (first, second) if time_major else (second, first)
        return Sequences(time, batch, size, x.dtype, time_major)

    @property
    def axis(self) -> int:
        """The axis of time."""
        return 0 if self.time_major else 1

    def shape(self, size: int) -> tuple[int, int, int]:
        """The shape of sequences with `size` features."""
        return (self.time, self.batch, size) if self.time_major else (self.batch, self.time, size)

    def order(self, reverse: bool) -> Sequence[int]:
        """The time steps in the order of computation."""
        return range(self.time)[:: -1 if reverse else 1]

    def steps(self, g: GraphBuilder, x: str, name: str) -> list[str]:
        """Nodes that give each time step [batch, size] of `x`."""
        return [squeeze(g, part, self.axis) for part in split(g, x, self.time, self.axis, name)]

    def joined(self, g: GraphBuilder, steps: Sequence[str], size: int, name: str) -> str:
        """Nodes that give sequences of `size` features from their time steps [batch, size]."""
        if not steps:
            return zeros(g, self.shape(size), self.dtype)
        axes = g.constant([self.axis], "int64", "axes")
        return concat(g, [g.node(Unsqueeze(), step, axes, name=f"{name}_step") for step in steps], self.axis, name)


@dataclass(frozen=True)
class RnnWay:
    """The inputs of one direction of an RNN, as value names; `""` is left out."""

    W: str
    R: str
    b: str
    b_recurrent: str
    h: str

    def with_weights(self, W: str) -> "RnnWay":
        """The same with other weights of the input."""
        return replace(self, W=W)


def check_rnn_way(prefix: str, types: Sequence[TensorType | None], x: Sequences) -> int:
    """The number of units, from the types of W, R, b, b_recurrent and h, whose names in messages begin with `prefix`.

    Raises `ShapeError` for types that do not fit.
    """
    W, R, b, b_recurrent, h = types
    assert W is not None
    units, _ = check_rank(f"{prefix}W", W, ("units", "input_size"))
    check_shapes(
        (f"{prefix}W", W, (units, x.size)),
        (f"{prefix}R", R, (units, units)),
        (f"{prefix}b", b, (units,)),
        (f"{prefix}b_recurrent", b_recurrent, (units,)),
        (f"{prefix}h", h, (x.batch, units)),
    )
    return units


def run_rnn(
    g: GraphBuilder, x: Sequences, steps: Sequence[str], way: RnnWay, units: int, activation: str, *, reverse: bool = False
) -> tuple[str, list[str]]:
    """An RNNCell for each of the `steps` [batch, input_size]: the last state, and the outputs in time order.

    In reverse the last step is computed first, and the state given back is that after the first.
    """
    bias = g.node(Add(), way.b, way.b_recurrent, name="bias") if way.b and way.b_recurrent else way.b or way.b_recurrent
    outputs = [""] * x.time
    h = way.h
    for t in x.order(reverse):
        h = outputs[t] = g.node(RNNCell(activation=activation), steps[t], way.W, bias, h, way.R)
    return h or zeros(g, (x.batch, units), x.dtype), outputs


def split(g: GraphBuilder, x: str, count: int, axis: int, name: str) -> tuple[str, ...]:
    """`x` cut into equal parts along an axis: nothing, `x` itself, or the outputs of a node."""
    if count < 2:
        return (x,) * count
    parts: tuple[str, ...] = g.node(Split(axis=axis, num_outputs=count), x, name=name, outputs=count)
    return parts


def squeeze(g: GraphBuilder, x: str, axis: int) -> str:
    """`x` without an axis of size 1."""
    result: str = g.node(Squeeze(), x, g.constant([axis], "int64", "axes"))
    return result


def concat(g: GraphBuilder, parts: Sequence[str], axis: int, name: str) -> str:
    """Values joined along an axis; a single one is itself."""
    if len(parts) == 1:
        return parts[0]
    result: str = g.node(Concat(axis=axis), *parts, name=name)
    return result


def zeros(g: GraphBuilder, shape: tuple[int, ...], dtype: DType) -> str:
    """A constant of zeros."""
    return g.constant(np.zeros(shape, dtype.numpy), name="zeros")
