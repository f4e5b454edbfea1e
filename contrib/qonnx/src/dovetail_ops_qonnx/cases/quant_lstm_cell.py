"""Cases of QuantLSTMCell, number by number in float64."""

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from dovetail.testing import Case
from dovetail_ops_qonnx.cases._numbers import Array, floats, numbers
from dovetail_ops_qonnx.quant_lstm_cell import QuantLSTMCell

_STEPS, _BATCH, _SIZE, _HIDDEN = 4, 2, 3, 2
_UNSIGNED = (6, 7, 9)
"""The quantizers of sigmoids."""


def quant_lstm_cell(rng: np.random.Generator) -> Iterator[Case]:
    """Both orders of steps and of axes, a coupled forget gate, one bias, a zero point, batch 0."""
    x, hidden, cell = (_eighths(rng, *shape) for shape in ((_STEPS, _BATCH, _SIZE), (_BATCH, _HIDDEN), (_BATCH, _HIDDEN)))
    weights = [_eighths(rng, _HIDDEN, size) for size in (_SIZE,) * 4 + (_HIDDEN,) * 4]
    biases = [_eighths(rng, _HIDDEN) for _ in range(4)]
    quantizers = [numbers(1 / 16, 0, 6) for _ in range(11)]
    quantizers[0], quantizers[2] = numbers(1 / 32, 3, 5), numbers(1 / 4, 0, 4)
    for name, given in (("plain", {}), ("reversed", {"reverse_input": True}), ("coupled", {"cifg": True})):
        yield _case(name, given, x, hidden, cell, weights, biases, quantizers)
    one = [floats(0.125)] * 4
    yield _case("batch_first", {"batch_first": True}, x, hidden, cell, weights, one, quantizers)
    yield _case("batch_0", {}, x[:, :0], hidden[:0], cell[:0], weights, biases, quantizers)


def _eighths(rng: np.random.Generator, *shape: int) -> Array:
    return floats(rng.integers(-8, 9, shape) / 8)


def _case(
    name: str,
    given: dict[str, Any],
    x: Array,
    hidden: Array,
    cell: Array,
    weights: list[Array],
    biases: list[Array],
    quantizers: list[tuple[Array, ...]],
) -> Case:
    signs: dict[str, Any] = {f"{gate}_sigmoid_signed": False for gate in ("input", "forget", "output")}
    op = QuantLSTMCell(output_rounding_mode="FLOOR", **signs, **given)
    rounds = [_quantizer(at, *(float(number) for number in one)) for at, one in enumerate(quantizers)]
    wide = [bias * np.ones(_HIDDEN) for bias in biases]
    y, h, c = np.zeros((len(x), *hidden.shape)), hidden.astype(np.float64), cell.astype(np.float64)
    for step in range(len(x))[:: -1 if op.reverse_input else 1]:
        before = h.copy()
        for text in range(len(h)):
            for unit in range(_HIDDEN):
                sums = [
                    sum(float(a * b) for a, b in zip(weights[gate][unit], x[step, text], strict=True))
                    + sum(float(a * b) for a, b in zip(weights[4 + gate][unit], before[text], strict=True))
                    + float(wide[gate][unit])
                    for gate in range(4)
                ]
                h[text, unit], c[text, unit] = _unit(sums, float(c[text, unit]), rounds, coupled=op.cifg)
        y[step] = h
    own, found = (np.swapaxes(a, 0, 1) if op.batch_first else a for a in (x, floats(y)))
    inputs = (own, hidden, cell, *weights, *biases, *(number for one in quantizers for number in one))
    return Case(name, op, inputs, (found, floats(h), floats(c)), constants=tuple(range(15, 48)))


def _unit(sums: list[float], cell: float, rounds: list[Callable[[float], float]], *, coupled: bool) -> tuple[float, float]:
    """The hidden state and the cell state of one unit from the sums of its gates."""
    i, f, g, o = (rounds[2 + at](value) for at, value in enumerate(sums))
    taken = rounds[6](1 / (1 + math.exp(-i)))
    kept = rounds[6](1.0) - taken if coupled else rounds[7](1 / (1 + math.exp(-f)))
    new = rounds[1](rounds[1](kept * cell) + rounds[1](taken * rounds[8](math.tanh(g))))
    return rounds[0](rounds[9](1 / (1 + math.exp(-o))) * rounds[10](math.tanh(new))), new


def _quantizer(at: int, scale: float, zero: float, bits: float) -> Callable[[float], float]:
    low, high = (0.0, 2**bits - 1) if at in _UNSIGNED else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    whole = math.floor if at == 0 else round
    return lambda x: (whole(min(max(x / scale + zero, low), high)) - zero) * scale
