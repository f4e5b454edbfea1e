"""Sequences of several lengths by primitives that know one: what lies past the end of a sequence is computed, and left out."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from dovetail_ops_onnx.gru import GRU
    from dovetail_ops_onnx.lstm import LSTM
    from dovetail_ops_onnx.rnn import RNN

__all__ = ["by_lengths"]

Array = NDArray[Any]


def by_lengths(
    op: "GRU | LSTM | RNN",
    calls: Sequence[Callable[[], int]],
    x: Array,
    lengths: Array,
    y: Array,
    last: Array | None,
    initial: Array | None,
) -> int:
    """Run the primitive of each direction, then bring Y and the last hidden state to what ONNX wants past the lengths.

    For the direction that begins at the end, the sequences are moved to the end of the time for as long as it runs. Gives the
    status of the first primitive that fails, else 0.
    """
    # Time first, the directions second in Y, first in states.
    xs, ys = (x.swapaxes(0, 1), y.transpose(1, 2, 0, 3)) if op.layout else (x, y)
    states = [s if s is None or not op.layout else s.swapaxes(0, 1) for s in (last, initial)]
    time = len(xs)
    counts = np.clip(lengths, 0, time).tolist()
    status = 0
    for d, call in enumerate(calls):
        backwards = op.direction == "reverse" or d == 1
        status = status or (_at_the_end(call, x, xs, counts) if backwards else call())
        final, first = (None if s is None else s[d] for s in states)
        for n, count in enumerate(counts):
            row = ys[:, d, n]
            if backwards and 0 < count < time:
                row[:count] = row[time - count :].copy()
            if final is not None and count:
                final[n] = row[0 if backwards else count - 1]
            elif final is not None:
                final[n] = 0 if first is None else first[n]
            row[count:] = 0
    return status


def _at_the_end(call: Callable[[], int], x: Array, xs: Array, counts: Sequence[int]) -> int:
    """The call with each sequence at the end of the time."""
    given, time = x.copy(), len(xs)
    try:
        for n, count in enumerate(counts):
            xs[time - count :, n] = xs[:count, n].copy()
        return call()
    finally:
        np.copyto(x, given)
