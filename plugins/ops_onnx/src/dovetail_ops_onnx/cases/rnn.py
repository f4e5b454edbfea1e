"""Cases of RNN: sequence by sequence in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._recurrences import unrolled, weights
from dovetail_ops_onnx.rnn import RNN

FORWARD, REVERSE, BOTH = (False,), (True,), (False, True)


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Directions, initial state, sequences of different lengths, batch first, other activations, clip, batch 0, float16."""
    x = rng.standard_normal((4, 3, 5)).astype(np.float32)
    for name, directions in (("forward", FORWARD), ("reverse", REVERSE), ("bidirectional", BOTH)):
        parts = weights(rng, len(directions), 1, 5, 7)
        want = unrolled(x, 7, directions, (None,), (4, 4, 4), _step(*parts))
        yield Case(name, RNN(direction=name), (x, *parts), want)
    h = rng.standard_normal((2, 3, 7)).astype(np.float32)
    want = unrolled(x, 7, BOTH, (h,), (4, 0, 2), _step(*parts))
    lens = np.array([4, 0, 2], np.int32)
    yield Case("lengths", RNN(direction="bidirectional"), (x, *parts, lens, h), want)
    batch_first = (want[0].transpose(2, 0, 1, 3), want[1].swapaxes(0, 1))
    op = RNN(direction="bidirectional", layout=1)
    yield Case("batch_first", op, (x.swapaxes(0, 1), *parts, lens, h.swapaxes(0, 1)), batch_first)
    w, r, b = weights(rng, 1, 1, 5, 7)
    want = unrolled(x, 7, FORWARD, (None,), (4, 4, 4), _step(w, r, b, lambda v: np.clip(0.5 * np.clip(v, -0.4, 0.4) + 0.1, 0, 1)))
    op = RNN(activations=("HardSigmoid",), activation_alpha=(0.5,), activation_beta=(0.1,), clip=0.4)
    yield Case("activation_and_clip", op, (x, w, r, b), want)
    yield Case("no_bias", RNN(), (x, w, r), unrolled(x, 7, FORWARD, (None,), (4, 4, 4), _step(w, r, 0 * b)))
    yield Case("batch_0", RNN(), (x[:, :0], w, r), (np.zeros((4, 1, 0, 7), np.float32), np.zeros((1, 0, 7), np.float32)))
    yield Case("no_steps", RNN(), (x[:0], w, r, b, None, h[:1]), (np.zeros((0, 1, 3, 7), np.float32), h[:1].copy()))
    half = [a.astype(np.float16) for a in (x, w, r, b)]
    want = unrolled(half[0], 7, FORWARD, (None,), (4, 4, 4), _step(*half[1:]))
    yield Case("float16", RNN(), tuple(half), want, rtol=3e-3, atol=3e-3)


def _step(w: NDArray[Any], r: NDArray[Any], b: NDArray[Any], f: Any = np.tanh) -> Any:
    W, R, B = (a.astype(np.float64) for a in (w, r, b))

    def step(x: NDArray[Any], states: list[NDArray[Any]], d: int) -> list[NDArray[Any]]:
        return [f(W[d] @ x + R[d] @ states[0] + B[d].reshape(2, -1).sum(axis=0))]

    return step
