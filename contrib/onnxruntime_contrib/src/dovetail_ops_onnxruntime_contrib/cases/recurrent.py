"""Cases of the recurrent operators with quantized weights: the recurrence in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.recurrent import DynamicQuantizeLSTM

Array = NDArray[Any]


def _sigmoid(x: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-x)))


def _lstm(x: Array, w: Array, r: Array, b: Array) -> tuple[Array, Array, Array]:
    """One direction: all hidden states, the last one, the last cell state."""
    hidden = r.shape[0]
    h = c = np.zeros((x.shape[1], hidden))
    states = []
    for step in x:
        i, o, f, g = np.split(step @ w + h @ r + b[: 4 * hidden] + b[4 * hidden :], 4, axis=1)
        c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
        h = _sigmoid(o) * np.tanh(c)
        states.append(h)
    return np.stack(states), h, c


def dynamic_quantize_lstm(rng: np.random.Generator) -> Iterator[Case]:
    """Both types, one scale and one for each column, two directions."""
    size, hidden = 3, 5
    x = rng.standard_normal((4, 2, size)).astype(np.float32)
    for name, dtype, columns, direction in (
        ("int8", np.int8, False, "forward"),
        ("uint8_columns", np.uint8, True, "bidirectional"),
    ):
        dirs = 2 if direction == "bidirectional" else 1
        limits = np.iinfo(dtype)
        w, r = (rng.integers(limits.min, limits.max + 1, (dirs, n, 4 * hidden)).astype(dtype) for n in (size, hidden))
        shape = (dirs, 4 * hidden) if columns else (dirs,)
        scales = [(rng.uniform(1, 2, shape) / 128).astype(np.float32) for _ in range(2)]
        zeros = [rng.integers(limits.max // 2 - 3, limits.max // 2 + 3, shape).astype(dtype) for _ in range(2)]
        b = rng.standard_normal((dirs, 8 * hidden)).astype(np.float32)
        found = []
        for d in range(dirs):
            wide = [(q[d].astype(float) - z[d]) * s[d] for q, s, z in zip((w, r), scales, zeros, strict=True)]
            y, h, c = _lstm(x[::-1] if d else x, wide[0], wide[1], b[d].astype(float))
            found.append((y[::-1] if d else y, h, c))
        want = (np.stack([y for y, _, _ in found], 1), np.stack([h for _, h, _ in found]), np.stack([c for _, _, c in found]))
        op = DynamicQuantizeLSTM(direction=direction, hidden_size=hidden)
        given = (x, w, r, b, None, None, None, None, scales[0], zeros[0], scales[1], zeros[1])
        yield Case(name, op, given, tuple(a.astype(np.float32) for a in want), rtol=1e-4, atol=1e-5)
