"""RNN, GRU and LSTM: one primitive for each direction, which writes its part of the results.

oneDNN's dimensions: src [T, N, C], dst [T, N, H], states [1, 1, N, H], weights [1, 1, C or H, gates, H], bias [1, 1, gates, H].
"""

from abc import abstractmethod
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, TensorType, TypedNode
from dovetail_cpu_onednn.binding import TAG_ANY, Arg, MemoryDesc, PrimitiveDesc, Stream
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, Stage
from dovetail_cpu_onednn.kernels._lengths import by_lengths
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.rnn import RNN

__all__ = ["BACKWARD", "LENGTHS", "Array", "Recurrent", "RecurrentKernel", "Roles", "Weights", "is_default"]

Array = NDArray[Any]
Recurrent = GRU | LSTM | RNN

BIAS, LENGTHS, INITIAL = 3, 4, 5
FORWARD, BACKWARD = 1, 2
_STATES = ((Arg.SRC_1, Arg.DST_1), (Arg.SRC_2, Arg.DST_2))


class Roles(dict[int, MemoryDesc]):
    """The descriptors of one direction by argument; None for those left out."""

    def __missing__(self, arg: int) -> None:
        return None


class RecurrentKernel(PrimitiveKernel):
    """Base: the order of the gates, the states, and the primitive."""

    order: ClassVar[tuple[int, ...]]
    """For each of oneDNN's gates the number that ONNX gives it."""
    states: ClassVar[int] = 1
    waits: ClassVar[tuple[int, int]]
    """How often the time that threads lose in a step is that of one barrier: with one sequence, and with several."""

    @abstractmethod
    def describe(self, op: Recurrent, direction: int, roles: Roles) -> PrimitiveDesc:
        """The primitive for one direction. Raises `Refused` for attributes that it does not have."""

    def bias(self, op: Recurrent, of_x: Array, of_h: Array) -> Array:
        """The bias [gates, H] from that of the products with x and with h, in ONNX's order of gates."""
        found: Array = (of_x + of_h)[list(self.order)]
        return found

    def biases(self, op: Recurrent) -> int:
        """How many rows `bias` has."""
        return len(self.order)

    def barriers(self, node: TypedNode) -> int:
        op, src = node.op, node.given(0)
        assert isinstance(op, Recurrent)
        batch, time = src.dims[:2] if op.layout else src.dims[1::-1]
        return time * op.directions * self.waits[batch > 1]

    def is_guarded(self, node: TypedNode) -> bool:
        lengths = node.optional(LENGTHS)
        return lengths is not None and lengths.value is None

    def safety(self, node: TypedNode, array: Callable[[str], Array], stream: Stream) -> Callable[[], bool]:
        """Whether all sequences are as long as the time: the primitives know no other lengths."""
        op, lengths = node.op, array(node.node.inputs[LENGTHS])
        assert isinstance(op, Recurrent)
        time = node.given(0).dims[1 if op.layout else 0]
        return lambda: bool(lengths.min() >= time)

    def otherwise(
        self,
        node: TypedNode,
        array: Callable[[str], Array],
        unread: Collection[str],
        calls: Sequence[Callable[[], int]],
        reference: Callable[[], int | None],
    ) -> Callable[[], int | None]:
        """The primitives for sequences of several lengths too, unless the last cell state is read, or the model has no Y."""
        op, (y, last, cell), x = node.op, (*node.node.outputs, "", "")[:3], array(node.node.inputs[0])
        assert isinstance(op, Recurrent)
        if not y or (cell and cell not in unread) or not x.flags.writeable:
            return reference
        initial = node.node.inputs[INITIAL] if node.optional(INITIAL) is not None else ""
        lengths, states = array(node.node.inputs[LENGTHS]), [array(name) if name else None for name in (last, initial)]
        return partial(by_lengths, op, calls, x, lengths, array(y), *states)

    def label(self, name: str, node: TypedNode) -> str:
        return f"{self.name}:{super().label(name, node)}"

    def _checked(self, node: TypedNode) -> NodePlan:
        # The implementation of gru is called ref, but multiplies matrices as fast as the others.
        self._require(node)
        return self.plan(node, True, False)

    def _require(self, node: TypedNode) -> None:
        for tensor in (*node.inputs, *node.outputs):
            if tensor is not None and tensor.dtype is not DType.FLOAT32 and tensor is not node.optional(LENGTHS):
                raise Refused(Reason.DTYPE, f"{tensor.dtype}; accepted: float32")
            if tensor is not None and not tensor.size:
                raise Refused(Reason.SHAPE, "no elements")

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op = node.op
        assert isinstance(op, Recurrent)
        _check(node, op, node.optional(LENGTHS))
        if any(t is not None and t.value is None for t in (*node.inputs[1:4], *node.inputs[5 + self.states :])):
            raise Refused(Reason.ATTRIBUTE, "weights that are not constant")
        return self._plan(node, free, shared)

    @cached_plan
    def _plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        """The plan, whatever constants contain: layers mostly come in stacks."""
        op, stages, scratch = node.op, [], 0
        assert isinstance(op, Recurrent)
        for d in range(op.directions):
            stage, needed = self._stage(node, op, d)
            stages.append(stage)
            scratch = max(scratch, needed)
        return NodePlan(tuple(stages), None, (scratch,) * (1 + self.states) if scratch else ())

    def _stage(self, node: TypedNode, op: Recurrent, d: int) -> tuple[Stage, int]:
        """The primitive of direction `d`, and the bytes of a work buffer for results that nobody asks for."""
        lib, sizes = library(), _Sizes(node, op, d)
        arguments = [Argument(Arg.SRC, "input", 0, sizes.src), *self._results(node, sizes)]
        for state, (arg, _) in enumerate(_STATES[: self.states]):
            if any(node.optional(INITIAL + s) is not None for s in range(self.states)):
                arguments.append(self._initial(node, INITIAL + state, arg, sizes))
        weights = self._weights(node, op, d)
        roles = Roles({a.arg: a.desc for a in arguments})
        roles |= {arg: lib.tagged(w.dims, TAG_ANY) if arg in (33, 34) else plain(w.dims) for arg, w in weights.items()}
        pd = self.describe(op, BACKWARD if op.direction == "reverse" or d else FORWARD, roles)
        for role, w in weights.items():
            wanted = lib.arg_md(pd, role, w.dims)
            arguments.append(Argument(role, "input", w.index, plain(w.dims), wanted, repack=w.repack))
        unused = max((lib.nbytes(a.desc) for a in arguments if a.place == "scratch"), default=0)
        return Stage(pd, tuple(arguments)), unused

    def _results(self, node: TypedNode, sizes: "_Sizes") -> list[Argument]:
        """Y, needed or not, and the last states, all of them if one is requested."""
        names = [*node.node.outputs, "", ""]
        found = [
            Argument(Arg.DST, "output", 0, sizes.dst) if names[0] else Argument(Arg.DST, "scratch", 0, plain(sizes.dst.dims))
        ]
        if any(names[1 : 1 + self.states]):
            for state, (_, arg) in enumerate(_STATES[: self.states], 1):
                place, last = ("output", sizes.state) if names[state] else ("scratch", plain(sizes.state.dims))
                found.append(Argument(arg, place, state, last))
        return found

    def _initial(self, node: TypedNode, index: int, arg: int, sizes: "_Sizes") -> Argument:
        if node.optional(index) is not None:
            return Argument(arg, "input", index, sizes.state)
        zeros = partial(np.zeros, sizes.state.dims, np.float32)
        return Argument(arg, "input", 0, plain(sizes.state.dims), content=zeros)

    def _weights(self, node: TypedNode, op: Recurrent, d: int) -> dict[int, "Weights"]:
        """The constants, by argument."""
        gates, hidden = len(self.order), node.given(2).dims[2]
        found: dict[int, Weights] = {}
        for arg, index in ((Arg.WEIGHTS, 1), (Arg.WEIGHTS_1, 2)):
            dims = (1, 1, node.given(index).dims[2], gates, hidden)
            found[arg] = Weights(index, dims, _Transposed(d, self.order, dims))
        rows = (1, 1, self.biases(op), hidden)
        if node.optional(BIAS) is None:  # the fast implementations want one
            found[Arg.BIAS] = Weights(1, rows, _Zeros(rows))
        else:
            found[Arg.BIAS] = Weights(BIAS, rows, _Bias(d, self, op, rows))
        return found


class _Sizes:
    """Descriptors of direction `d` inside of the whole tensors, in ONNX's layout 0 or 1 (batch first)."""

    def __init__(self, node: TypedNode, op: Recurrent, d: int) -> None:
        lib, dims, h, count = library(), node.given(0).dims, node.given(2).dims[2], op.directions
        n, t, c = dims if op.layout else (dims[1], dims[0], dims[2])
        if op.layout:
            self.src = lib.strided((t, n, c), (c, t * c, 1))
            self.dst = lib.part(lib.strided((t, n, count * h), (count * h, t * count * h, 1)), (t, n, h), (0, 0, d * h))
            states = lib.strided((1, count, n, h), (count * n * h, h, count * h, 1))
        else:
            self.src = plain((t, n, c))
            self.dst = lib.part(plain((t, count * n, h)), (t, n, h), (0, d * n, 0))
            states = plain((1, count, n, h))
        self.state = lib.part(states, (1, 1, n, h), (0, d, 0, 0))


@dataclass(frozen=True, slots=True)
class Weights:
    """A constant of one direction: the input of the node that it is made of, its dimensions, and how it is made."""

    index: int
    dims: tuple[int, ...]
    repack: Callable[[Array], Array]


@dataclass(frozen=True, slots=True)
class _Transposed:
    """[directions, gates H, C] to one direction as [1, 1, C, gates, H]."""

    direction: int
    order: tuple[int, ...]
    dims: tuple[int, ...]

    def __call__(self, value: Array) -> Array:
        gates: Array = value[self.direction].reshape(len(self.order), self.dims[-1], self.dims[2])
        return gates[list(self.order)].transpose(2, 0, 1).reshape(self.dims)


@dataclass(frozen=True, slots=True)
class _Bias:
    """[directions, 2 gates H] to the bias of one direction."""

    direction: int
    kernel: RecurrentKernel
    op: Recurrent
    dims: tuple[int, ...]

    def __call__(self, value: Array) -> Array:
        both = value[self.direction].reshape(2, -1, self.dims[-1])
        return self.kernel.bias(self.op, both[0], both[1]).reshape(self.dims)


@dataclass(frozen=True, slots=True)
class _Zeros:
    """Zeros, whatever is given."""

    dims: tuple[int, ...]

    def __call__(self, _: Array) -> Array:
        return np.zeros(self.dims, np.float32)


def is_default(op: Recurrent) -> bool:
    """Whether every activation is the default one of the standard, without alpha and beta."""
    return tuple(name.lower() for name in op.activations or ()) in ((), tuple(n.lower() for n in op.defaults * op.directions))


def _check(node: TypedNode, op: Recurrent, lengths: TensorType | None) -> None:
    time = node.given(0).dims[1 if op.layout else 0]
    if node.post_ops:
        raise Refused(Reason.POST_OP, "the rnn primitives take none")
    if op.clip is not None:
        raise Refused(Reason.ATTRIBUTE, f"clip {op.clip}; accepted: none")
    if lengths is not None and lengths.value is not None and (lengths.value < time).any():
        raise Refused(Reason.DYNAMIC, "sequences of different lengths")
