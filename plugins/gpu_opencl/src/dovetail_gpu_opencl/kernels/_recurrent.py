"""RNN, GRU and LSTM: the products with X of all steps at once, then the steps, on one work group or several for each sequence,
or on CPUs several sequences in a work item."""

from collections.abc import Iterator

import numpy as np

from dovetail.device import DType, TypedNode, padded
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel, ceil_div, group_size, round_up, spread
from dovetail_gpu_opencl.launch import Argument, Constant, Launch, Null, Read, Scratch, Write, ints
from dovetail_gpu_opencl.precision import holds
from dovetail_gpu_opencl.source import accumulator, accumulator_bytes, assemble, literal, storage
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.lstm import LSTM
from dovetail_ops_onnx.rnn import RNN

__all__ = ["Recurrence"]

# C over x with the parameters alpha and beta, and their defaults. NaN stays NaN.
_ACTIVATIONS: dict[str, tuple[str, tuple[float, ...]]] = {
    "relu": ("(x) < 0 ? (ACC)0 : (x)", ()),
    "tanh": ("tanh(x)", ()),
    "sigmoid": ("1 / (1 + exp(-(x)))", ()),
    "affine": ("{0} * (x) + {1}", (1.0, 0.0)),
    "leakyrelu": ("(x) >= 0 ? (x) : {0} * (x)", (0.01,)),
    "thresholdedrelu": ("(x) >= {0} ? (x) : (ACC)0", (1.0,)),
    "scaledtanh": ("{0} * tanh({1} * (x))", (1.0, 1.0)),
    "hardsigmoid": ("{0} * (x) + {1} < 0 ? (ACC)0 : ({0} * (x) + {1} > 1 ? (ACC)1 : {0} * (x) + {1})", (0.2, 0.5)),
    "elu": ("(x) >= 0 ? (x) : {0} * expm1(x)", (1.0,)),
    "softsign": ("(x) / (1 + fabs(x))", ()),
    "softplus": ("fmax(x, (ACC)0) + log1p(exp(-fabs(x)))", ()),
}


_LANES, _AT_ONCE, _SIDE, _TILE = 8, 4, 16, 2
"""Items that add up a row together, rows that an item adds up at a time, and the items along a side of a
work group's block of products, with the results of each along both axes."""
_STEPS = 4
"""Steps, or sequences, of which an item multiplies X by a row of weights, as recurrent.cl has it with ALL_FLOATS."""
_READ_AT_ONCE = {DType.FLOAT32: 4, DType.FLOAT16: 8}
_FLOATS = {DType.FLOAT32: "(*(__global const float4*)(p))", DType.FLOAT16: "load_half8(p)"}
"""Recurrent weights that an item reads at once, and how it does."""
_LOCAL = 48 << 10
"""Bytes of local memory that a program may declare: NVIDIA's driver takes no more."""
_SHARED, _MOST_STATES, _FEWEST_STEPS, _PATIENCE = 256, 1024, 4, 1000
"""For recurrent_shared.cl: items of a work group, the longest row of weights of which an item keeps an eighth in registers, steps
for which it pays, and how often a group looks for the others before it leaves: about a millisecond."""
_VECTORS, _SEQUENCES = frozenset(("tanh", "sigmoid", "affine", "softsign")), 4
"""For recurrent_sequences.cl: activations whose C takes vectors, and the most sequences of a work item."""


class Recurrence(CLKernel):
    """recurrent.cl, recurrent_shared.cl, recurrent_sequences.cl. Two directions of the same activations run side by side."""

    name = "recurrent"
    halves_by_load = True
    has_epilogue = False
    dtypes = FLOATS | {DType.INT32}

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        op = _operator(node)
        activations = _activations(op, accumulator(node.outputs[0].dtype))
        each = [activations[d * len(op.defaults) :][: len(op.defaults)] for d in range(op.directions)]
        if each[0] == each[-1]:
            return self._directions(node, 0, op.directions, each[0])
        return (*self._directions(node, 0, 1, each[0]), *self._directions(node, 1, 1, each[1]))

    def _directions(self, node: TypedNode, first: int, count: int, activations: list[str]) -> tuple[Launch, ...]:
        """The launches of `count` directions from `first` on."""
        op, x, hidden = _operator(node), node.given(0), node.given(2).dims[2]
        (time, batch), width = (x.dims[1::-1] if op.layout else x.dims[:2]), x.dims[2]
        rows, whole = op.gates * hidden, accumulator_bytes(x.dtype)
        acc, group = accumulator(x.dtype), self._group(rows, whole)
        held = 4 * hidden + (rows if group > 1 else 0)
        within = group > 1 and (held + _LANES * (group // _LANES * _AT_ONCE + 4)) * whole <= min(_LOCAL, self.caps.local_memory)
        recurrent, weights = self._weights(node)
        size = _READ_AT_ONCE.get(recurrent, 1)
        wide = size if group > 1 and hidden % size == 0 else 1
        shared = {
            **storage(x.dtype),
            **storage(recurrent, "R"),
            "ACC": acc,
            op.op_type: True,
            "CLIP": False if op.clip is None else literal(op.clip, acc),
            "BEFORE_RESET": isinstance(op, GRU) and op.linear_before_reset,
            "INPUT_FORGET": isinstance(op, LSTM) and op.input_forget,
            # RNN has one activation, GRU two, LSTM three.
            **{f"{name}(x)": f"({text})" for name, text in zip("FGH", activations, strict=False)},
        }
        groups = self._groups_of_a_sequence(node, count)
        cleared = 1 + 2 * count * batch * hidden if groups else 0
        own = {
            "WIDE": wide,
            "FLOATS(p)": _FLOATS[recurrent] if wide > 1 else False,
            "GROUP": group,
            "ALL_FLOATS": group == 1 and x.dtype is recurrent is DType.FLOAT32,
            "SPACE": "__local" if within else "__global",
            "STATES": held if within else False,
            "MEMBERS": groups * count or False,
            "CLEARED": cleared or False,
        }
        steps = _STEPS if own["ALL_FLOATS"] else 1
        in_sequences = self.caps.kind == "CPU" and own["ALL_FLOATS"]
        each = max(1, min(_SEQUENCES, batch * count // self.caps.compute_units))
        if in_sequences:  # in one program, because each takes PoCL some time
            units = _units(op, hidden)
            most = self.packed.settled("recurrent_sequences", node, 1 if each == 1 else _SEQUENCES)
            each = min(each, most)
            own |= {"IN_SEQUENCES": True, "SEQUENCES": most}
            own |= {"UNITS": units, "CELL": "float8" if units > 1 else False}
        source = assemble("recurrent.cl", shared | own)
        gates = Scratch(f"scratch:{node.name}:0", count * time * batch * rows * whole)
        states = Scratch(f"scratch:{node.name}:1", count * batch * held * whole)
        given = [Read(name) if name else Null() for name in (*padded(node.node.inputs, op.inputs), *("",) * 3)]
        inputs, lens, initial_h, initial_c, peepholes = given[:4], given[4], given[5], given[6], given[7]
        written = [Write(name) if name else Null() for name in (*node.node.outputs, "", "")[:3]]
        sizes = ints(time, batch, width, hidden, first, op.directions, int(op.layout))
        exchange = (Scratch(f"scratch:{node.name}:2", 8 * cleared),) if groups else ()
        x_arguments: tuple[Argument, ...] = (inputs[0], inputs[1], inputs[3], gates, *sizes, *exchange)
        h_arguments = (gates, weights, inputs[3], peepholes, lens, initial_h, initial_c, *written)
        reverse = ints(int(op.direction == "reverse"))
        (items,), (local,) = spread(ceil_div(time * batch, steps) * rows, self.caps)
        work, side = ((items, count), (local, 1)) if group == 1 else self._blocks(rows, time * batch, count)
        launches = [Launch("recurrent.cl", source, "project", x_arguments, work, side)]
        if in_sequences:
            states = Scratch(states.value, count * batch * (3 * hidden + rows) * whole)
            place = (ceil_div(batch, each), count)
            arguments = (*h_arguments, states, *sizes, *reverse)
            return (*launches, Launch("recurrent.cl", source, "recurrent_sequences", arguments, place, (1, 1)))
        if groups:
            defines = {**shared, "HIDDEN": hidden, "BATCH": batch, "GROUP": _SHARED, "PATIENCE": _PATIENCE}
            text, arguments = assemble("recurrent_shared.cl", defines), (*h_arguments, *exchange, *sizes, *reverse)
            entry = "recurrent_shared"
            launches.append(Launch("recurrent_shared.cl", text, entry, arguments, (groups * _SHARED, count), (_SHARED, 1)))
        arguments = (*h_arguments, states, *sizes, *reverse, *exchange)
        launches.append(Launch("recurrent.cl", source, "recurrent", arguments, (batch * group, count), (group, 1)))
        return tuple(launches)

    def _groups_of_a_sequence(self, node: TypedNode, count: int) -> int:
        """Work groups of recurrent_shared.cl for each of `count` directions; 0 where it does not suit."""
        op, x, hidden = _operator(node), node.given(0), node.given(2).dims[2]
        time, batch = x.dims[1::-1] if op.layout else x.dims[:2]
        if self.caps.kind != "GPU" or self.caps.compute_capability < (7, 0) or accumulator(x.dtype) != "float":
            return 0
        if isinstance(op, GRU) and not op.linear_before_reset:
            return 0
        units = _SHARED // (_LANES * (4 if op.gates > 1 else 1))
        groups, padded_states = ceil_div(hidden, units), round_up(hidden, 4 * _LANES)
        memory = 4 * batch * (padded_states + _SHARED + 4 * units) + 64
        fits = batch * units <= _SHARED and padded_states <= _MOST_STATES and memory <= min(_LOCAL, self.caps.local_memory)
        return groups if time >= _FEWEST_STEPS and groups > 1 and fits and groups * count <= self.caps.compute_units else 0

    def _weights(self, node: TypedNode) -> tuple[DType, Argument]:
        """The recurrent weights and their type: halves where the hint says so. A step takes as long as it takes to read them."""
        given, content = node.given(2), node.given(2).value
        if self.caps.matrix == "f16" and given.dtype is DType.FLOAT32 and content is not None and holds(DType.FLOAT16, content):
            return DType.FLOAT16, Constant(self.packed.get(content, "halves", lambda: content.astype(np.float16)))
        return given.dtype, Read(node.node.inputs[2])

    def _group(self, rows: int, itemsize: int) -> int:
        """Items of a work group: 1 where it has too few, else enough for all rows, a part of a kilobyte's memory each."""
        if self.caps.kind == "CPU" or group_size(self.caps, _SIDE**2) < _SIDE**2:
            return 1
        return group_size(self.caps, min(4096 // itemsize, max(_SIDE**2, 1 << (rows * _LANES // _AT_ONCE - 1).bit_length())))

    @staticmethod
    def _blocks(rows: int, steps: int, count: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
        blocks = (ceil_div(size, _SIDE * _TILE) * _SIDE for size in (rows, steps))
        return (*blocks, count), (_SIDE, _SIDE, 1)


def _units(op: GRU | LSTM | RNN, hidden: int) -> int:
    """Hidden units that recurrent_sequences.cl computes at once."""
    takes_vectors = op.clip is None and {name.lower() for name in op.activations or op.defaults} <= _VECTORS
    return 8 if takes_vectors and hidden % 8 == 0 else 1


def _operator(node: TypedNode) -> GRU | LSTM | RNN:
    assert isinstance(node.op, GRU | LSTM | RNN)
    return node.op


def _activations(op: GRU | LSTM | RNN, acc: str) -> list[str]:
    """C for the activations of all directions in turn: each takes the next of the alphas and betas if it has one."""
    names = op.activations or op.defaults * op.directions
    parameters: list[Iterator[float]] = [iter(op.activation_alpha or ()), iter(op.activation_beta or ())]
    found = []
    for name in names[: len(op.defaults) * op.directions]:
        text, defaults = _ACTIVATIONS[name.lower()]
        # A function takes two parameters, one, or none.
        values = [next(given, default) for given, default in zip(parameters, defaults, strict=False)]
        found.append(text.format(*(literal(value, acc) for value in values)))
    return found
