"""Shared by the cases of recurrent operators: sequence by sequence and step by step in float64."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Step = Callable[[NDArray[Any], list[NDArray[Any]], int], list[NDArray[Any]]]
"""(input [I], states [H] each, direction) -> the new states, the hidden one first."""


def unrolled(
    x: NDArray[Any],
    hidden: int,
    directions: Sequence[bool],
    initial: Sequence[NDArray[Any] | None],
    lens: Sequence[int],
    step: Step,
) -> tuple[NDArray[Any], ...]:
    """Y [T, D, N, H] and the last states [D, N, H] for x [T, N, I]; `directions` has for each whether it runs backwards."""
    time, batch, _ = x.shape
    y = np.zeros((time, len(directions), batch, hidden))
    last = [np.zeros((len(directions), batch, hidden)) for _ in initial]
    for d, backwards in enumerate(directions):
        for n in range(batch):
            states = [np.zeros(hidden) if s is None else s[d, n].astype(np.float64) for s in initial]
            steps = list(range(lens[n]))
            for t in steps[::-1] if backwards else steps:
                states = step(x[t, n].astype(np.float64), states, d)
                y[t, d, n] = states[0]
            for whole, state in zip(last, states, strict=True):
                whole[d, n] = state
    return tuple(a.astype(x.dtype) for a in (y, *last))


def weights(rng: np.random.Generator, directions: int, gates: int, size: int, hidden: int) -> tuple[NDArray[Any], ...]:
    """W, R and B for these sizes."""
    shapes = ((directions, gates * hidden, size), (directions, gates * hidden, hidden), (directions, 2 * gates * hidden))
    return tuple((rng.standard_normal(shape) / 2).astype(np.float32) for shape in shapes)


def sigmoid(v: NDArray[Any]) -> NDArray[Any]:
    """1 / (1 + exp(-v))."""
    y: NDArray[Any] = 1 / (1 + np.exp(-v))
    return y
