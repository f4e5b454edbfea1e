"""RNN, GRU and LSTM: the products with X of all steps at once, then one work group for each sequence runs through time."""

from collections.abc import Iterator

from dovetail.device import DType, TypedNode, padded
from dovetail_gpu_opencl.kernel import FLOATS, CLKernel, group_size, spread
from dovetail_gpu_opencl.launch import Argument, Launch, Null, Read, Scratch, Write, ints
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


class Recurrence(CLKernel):
    """recurrent.cl. A bidirectional operator is run in one direction after the other."""

    name = "recurrent"
    half_by_load = True
    bfloat16_by_load = True
    has_epilogue = False
    dtypes = FLOATS | {DType.INT32}

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        op = _operator(node)
        activations = _activations(op, accumulator(node.outputs[0].dtype))
        count = len(op.defaults)
        found: list[Launch] = []
        for d in range(op.directions):
            found += self._direction(node, d, activations[d * count : (d + 1) * count])
        return tuple(found)

    def _direction(self, node: TypedNode, d: int, activations: list[str]) -> tuple[Launch, Launch]:
        op, x, hidden = _operator(node), node.given(0), node.given(2).dims[2]
        (time, batch), width = (x.dims[1::-1] if op.layout else x.dims[:2]), x.dims[2]
        rows, whole = op.gates * hidden, accumulator_bytes(x.dtype)
        acc = accumulator(x.dtype)
        group = 1 if self.caps.kind == "CPU" else group_size(self.caps, min(256, 1 << (hidden - 1).bit_length()))
        defines = {
            **storage(x.dtype),
            "ACC": acc,
            op.op_type: True,
            "GROUP": group,
            "CLIP": False if op.clip is None else literal(op.clip, acc),
            "BEFORE_RESET": isinstance(op, GRU) and op.linear_before_reset,
            "INPUT_FORGET": isinstance(op, LSTM) and op.input_forget,
            # RNN has one activation, GRU two, LSTM three.
            **{f"{name}(x)": f"({text})" for name, text in zip("FGH", activations, strict=False)},
        }
        source = assemble("recurrent.cl", defines)
        gates = Scratch(f"scratch:{node.name}:0", time * batch * rows * whole)
        states = Scratch(f"scratch:{node.name}:1", batch * 4 * hidden * whole)
        given = [Read(name) if name else Null() for name in (*padded(node.node.inputs, op.inputs), *("",) * 3)]
        inputs, lens, initial_h, initial_c, peepholes = given[:4], given[4], given[5], given[6], given[7]
        written = [Write(name) if name else Null() for name in (*node.node.outputs, "", "")[:3]]
        sizes = ints(time, batch, width, hidden, d, op.directions, int(op.layout))
        backwards = op.direction == "reverse" or d == 1
        x_arguments: tuple[Argument, ...] = (inputs[0], inputs[1], inputs[3], gates, *sizes)
        h_arguments = (gates, inputs[2], inputs[3], peepholes, lens, initial_h, initial_c, *written, states)
        work, local = spread(time * batch * rows, self.caps)
        return (
            Launch("recurrent.cl", source, "project", x_arguments, work, local),
            Launch(
                "recurrent.cl", source, "recurrent", (*h_arguments, *sizes, *ints(int(backwards))), (batch * group,), (group,)
            ),
        )


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
