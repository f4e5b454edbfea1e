"""Cases of GRU: sequence by sequence in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._recurrences import sigmoid, unrolled, weights
from dovetail_ops_onnx.gru import GRU


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Directions, both places of the reset gate, initial state, lengths, batch first, other activations, batch 0, float16."""
    x = rng.standard_normal((4, 3, 5)).astype(np.float32)
    h = rng.standard_normal((2, 3, 6)).astype(np.float32)
    for name, directions in (("forward", (False,)), ("reverse", (True,)), ("bidirectional", (False, True))):
        w, r, b = weights(rng, len(directions), 3, 5, 6)
        for linear in (False, True):
            want = unrolled(x, 6, directions, (None,), (4, 4, 4), _step(w, r, b, linear))
            yield Case(f"{name}_linear_{linear:d}", GRU(direction=name, linear_before_reset=linear), (x, w, r, b), want)
    want = unrolled(x, 6, (False, True), (h,), (4, 1, 2), _step(w, r, b, False))
    lens = np.array([4, 1, 2], np.int32)
    yield Case("lengths", GRU(direction="bidirectional"), (x, w, r, b, lens, h), want)
    batch_first = (want[0].transpose(2, 0, 1, 3), want[1].swapaxes(0, 1))
    op = GRU(direction="bidirectional", layout=1)
    yield Case("batch_first", op, (x.swapaxes(0, 1), w, r, b, lens, h.swapaxes(0, 1)), batch_first)
    w, r, b = weights(rng, 1, 3, 5, 6)
    want = unrolled(x, 6, (False,), (None,), (4, 4, 4), _step(w, r, b, False, lambda v: v / (1 + np.abs(v))))
    yield Case("softsign", GRU(activations=("Sigmoid", "Softsign")), (x, w, r, b), want)
    yield Case("batch_0", GRU(), (x[:, :0], w, r), (np.zeros((4, 1, 0, 6), np.float32), np.zeros((1, 0, 6), np.float32)))
    half = [a.astype(np.float16) for a in (x, w, r, b)]
    want = unrolled(half[0], 6, (False,), (None,), (4, 4, 4), _step(half[1], half[2], half[3], False))
    yield Case("float16", GRU(), tuple(half), want, rtol=3e-3, atol=3e-3)


def _step(w: NDArray[Any], r: NDArray[Any], b: NDArray[Any], linear: bool, g: Any = np.tanh) -> Any:
    hidden = r.shape[2]
    W, R, B = (a.astype(np.float64).reshape(a.shape[0], -1, hidden, *a.shape[2:]) for a in (w, r, b))

    def step(x: NDArray[Any], states: list[NDArray[Any]], d: int) -> list[NDArray[Any]]:
        (h,) = states
        z = sigmoid(W[d, 0] @ x + R[d, 0] @ h + B[d, 0] + B[d, 3])
        reset = sigmoid(W[d, 1] @ x + R[d, 1] @ h + B[d, 1] + B[d, 4])
        of_h = reset * (R[d, 2] @ h + B[d, 5]) if linear else R[d, 2] @ (reset * h) + B[d, 5]
        return [(1 - z) * g(W[d, 2] @ x + of_h + B[d, 2]) + z * h]

    return step
