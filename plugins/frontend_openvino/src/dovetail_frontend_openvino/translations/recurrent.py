"""Recurrent cells and sequences. Batch comes first in both formats (ONNX: layout 1)."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.frontend import DType, FormatError
from dovetail_frontend_openvino.call import Call, Outputs, Table

__all__ = ["TABLE"]

_FUNCTIONS = {"sigmoid": "Sigmoid", "tanh": "Tanh", "relu": "Relu", "hardsigmoid": "HardSigmoid", "elu": "Elu"}
_DIRECTIONS = {"forward": "forward", "reverse": "reverse", "bidirectional": "bidirectional"}
_LSTM_GATES = (1, 3, 0, 2)
"""IR has f, i, c, o; ONNX wants i, o, f, c."""


def _sequence(op_type: str) -> Callable[[Call], Outputs]:
    """Inputs: X [batch, time, size], the states [batch, directions, hidden], lengths, W, R, B."""
    states = 2 if op_type == "LSTM" else 1

    def translate(call: Call) -> Outputs:
        first = 1 + states
        if not call.dtype(first).is_integer:
            raise FormatError(f"the lengths are {call.dtype(first)}", hint="accepted: int32 and int64")
        lengths = call.name(first) if call.dtype(first) is DType.INT32 else call.cast(call.name(first), DType.INT32)
        weights = [call.name(first + i) for i in (1, 2, 3)]
        direction = call.choice_attr("direction", _DIRECTIONS, "forward")
        results = _recurrent(call, op_type, call.name(0), [call.name(i) for i in range(1, first)], lengths, weights, direction)
        return call.op("Transpose", results[0], perm=(0, 2, 1, 3)), *results[1:]

    return translate


def _cell(op_type: str) -> Callable[[Call], Outputs]:
    """Inputs: X [batch, size], the states [batch, hidden], W, R, B: a sequence of one step, and one direction."""
    states = 2 if op_type == "LSTM" else 1

    def translate(call: Call) -> Outputs:
        along = [call.op("Unsqueeze", call.name(i), call.const([1])) for i in range(1 + states)]
        weights = [call.op("Unsqueeze", call.name(1 + states + i), call.const([0])) for i in (0, 1)]
        bias = 3 + states
        rows = _gates(call, op_type) * _hidden(call)
        weights.append(call.op("Unsqueeze", call.name(bias), call.const([0])) if call.has(bias) else _no_bias(call, rows))
        results = _recurrent(call, op_type, along[0], along[1:], "", weights, "forward")
        return tuple(call.op("Squeeze", value, call.const([1])) for value in results[1:])

    return translate


def _no_bias(call: Call, rows: int) -> str:
    return call.const(np.zeros((1, rows)), call.dtype(0))


def _hidden(call: Call) -> int:
    hidden = call.int_attr("hidden_size")
    if not 0 < hidden < 2**20:
        raise FormatError(f"hidden_size is {hidden}", hint="accepted: 1 to a million")
    return hidden


def _gates(call: Call, op_type: str) -> int:
    """The parts of a bias of IR."""
    if op_type == "GRU":
        return 4 if call.bool_attr("linear_before_reset", False) else 3
    return {"LSTM": 4, "RNN": 1}[op_type]


def _recurrent(
    call: Call, op_type: str, x: str, states: list[str], lengths: str, weights: list[str], direction: str
) -> tuple[str, ...]:
    attributes: dict[str, Any] = {"hidden_size": _hidden(call), "direction": direction, "layout": 1}
    attributes |= _activations(call, op_type, 2 if direction == "bidirectional" else 1)
    w, r, b = weights
    if op_type == "LSTM":
        w, r, b = (_reordered(call, value) for value in (w, r, b))
    if op_type == "GRU":
        attributes["linear_before_reset"] = int(call.bool_attr("linear_before_reset", False))
    directions = 2 if direction == "bidirectional" else 1
    bias = _bias(call, op_type, b, directions)
    return call.ops(op_type, 1 + len(states), x, w, r, bias, lengths, *states, **attributes)


def _activations(call: Call, op_type: str, directions: int) -> dict[str, Any]:
    default = {"LSTM": "sigmoid,tanh,tanh", "GRU": "sigmoid,tanh", "RNN": "tanh"}[op_type]
    names = [name.strip().lower() for name in call.text_attr("activations", default).split(",") if name.strip()]
    unknown = [name for name in names if name not in _FUNCTIONS]
    if unknown:
        raise FormatError(f"the activation is '{unknown[0]!r:.60}'", hint=f"accepted: {', '.join(_FUNCTIONS)}")
    found: dict[str, Any] = {"activations": tuple(_FUNCTIONS[name] for name in names) * directions}
    for ours, theirs in (("activation_alpha", "activations_alpha"), ("activation_beta", "activations_beta")):
        if call.text_attr(theirs, "").strip():
            found[ours] = tuple(float(x) for x in _floats(call, theirs)) * directions
    clip = call.float_attr("clip", 0.0)
    if clip not in (0.0, float("inf")):
        found["clip"] = clip
    return found


def _floats(call: Call, name: str) -> list[float]:
    try:
        return [float(item) for item in call.text_attr(name).split(",")]
    except ValueError:
        raise FormatError(f"the attribute '{name}' is '{call.text_attr(name)!r:.60}'", hint="accepted: numbers") from None


def _reordered(call: Call, value: str) -> str:
    parts = call.ops("Split", 4, value, axis=1, num_outputs=4)
    return call.op("Concat", *(parts[i] for i in _LSTM_GATES), axis=1)


def _bias(call: Call, op_type: str, b: str, directions: int) -> str:
    """ONNX has the biases of W and R one behind the other; IR has their sum, but for the last gate of a GRU with
    `linear_before_reset`."""
    hidden, gates = _hidden(call), _gates(call, op_type)
    dtype = call.dtype(0)
    if gates == 4 and op_type == "GRU":
        update, reset, out, recurrent = call.ops("Split", 4, b, axis=1, num_outputs=4)
        zeros = call.const(np.zeros((directions, 2 * hidden)), dtype)
        return call.op("Concat", update, reset, out, zeros, recurrent, axis=1)
    return call.op("Concat", b, call.const(np.zeros((directions, gates * hidden)), dtype), axis=1)


TABLE: Table = {
    **{f"{kind}Sequence": _sequence(kind) for kind in ("LSTM", "GRU", "RNN")},
    **{f"{kind}Cell": _cell(kind) for kind in ("LSTM", "GRU", "RNN")},
}
