"""Cases of LSTM: sequence by sequence in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._recurrences import sigmoid, unrolled, weights
from dovetail_ops_onnx.lstm import LSTM


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Directions, states, peepholes, coupled gates, lengths, batch first, activations, clip, batch 0, float16."""
    x = rng.standard_normal((4, 3, 5)).astype(np.float32)
    h, c = (rng.standard_normal((2, 3, 6)).astype(np.float32) for _ in range(2))
    full = (4, 4, 4)
    for name, directions in (("forward", (False,)), ("reverse", (True,)), ("bidirectional", (False, True))):
        w, r, b = weights(rng, len(directions), 4, 5, 6)
        want = unrolled(x, 6, directions, (None, None), full, _step(w, r, b))
        yield Case(name, LSTM(direction=name), (x, w, r, b), want)
    p = (rng.standard_normal((2, 18)) / 2).astype(np.float32)
    want = unrolled(x, 6, (False, True), (h, c), (4, 1, 2), _step(w, r, b, p))
    lens = np.array([4, 1, 2], np.int32)
    yield Case("lengths_states_peepholes", LSTM(direction="bidirectional"), (x, w, r, b, lens, h, c, p), want)
    batch_first = (want[0].transpose(2, 0, 1, 3), want[1].swapaxes(0, 1), want[2].swapaxes(0, 1))
    op = LSTM(direction="bidirectional", layout=1)
    yield Case("batch_first", op, (x.swapaxes(0, 1), w, r, b, lens, h.swapaxes(0, 1), c.swapaxes(0, 1), p), batch_first)
    w, r, b = weights(rng, 1, 4, 5, 6)
    want = unrolled(x, 6, (False,), (None, None), full, _step(w, r, b, coupled=True))
    yield Case("input_forget", LSTM(input_forget=True), (x, w, r, b), want)
    op = LSTM(activations=("Sigmoid", "Relu", "Tanh"), clip=0.3)
    want = unrolled(x, 6, (False,), (None, None), full, _step(w, r, b, g=lambda v: np.maximum(v, 0), clip=0.3))
    yield Case("relu_and_clip", op, (x, w, r, b), want)
    none = np.zeros((1, 0, 6), np.float32)
    yield Case("batch_0", LSTM(), (x[:, :0], w, r), (np.zeros((4, 1, 0, 6), np.float32), none, none.copy()))
    half = [a.astype(np.float16) for a in (x, w, r, b)]
    want = unrolled(half[0], 6, (False,), (None, None), full, _step(half[1], half[2], half[3]))
    yield Case("float16", LSTM(), tuple(half), want, rtol=3e-3, atol=3e-3)


def _step(
    w: NDArray[Any],
    r: NDArray[Any],
    b: NDArray[Any],
    p: NDArray[Any] | None = None,
    *,
    coupled: bool = False,
    g: Any = np.tanh,
    clip: float = np.inf,
) -> Any:
    hidden = r.shape[2]
    given = np.zeros((w.shape[0], 3 * hidden)) if p is None else p
    W, R, B, P = (a.astype(np.float64).reshape(a.shape[0], -1, hidden, *a.shape[2:]) for a in (w, r, b, given))

    def gate(x: NDArray[Any], h: NDArray[Any], d: int, k: int, peep: Any = 0.0) -> NDArray[Any]:
        v: NDArray[Any] = np.clip(W[d, k] @ x + R[d, k] @ h + B[d, k] + B[d, 4 + k] + peep, -clip, clip)
        return v

    def step(x: NDArray[Any], states: list[NDArray[Any]], d: int) -> list[NDArray[Any]]:
        h, c = states
        i = sigmoid(gate(x, h, d, 0, P[d, 0] * c))
        forget = 1 - i if coupled else sigmoid(gate(x, h, d, 2, P[d, 2] * c))
        new = forget * c + i * g(gate(x, h, d, 3))
        return [sigmoid(gate(x, h, d, 1, P[d, 1] * new)) * np.tanh(new), new]

    return step
