"""Cases of UnidirectionalSequenceRnn: TIM-VX's golden numbers."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_tim_vx.cases._sequences import ATOL, FORWARD, WAY, B, R, W, X
from dovetail_ops_tim_vx.unidirectional_sequence_rnn import UnidirectionalSequenceRnn


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both golden activations, batch first, biases and state left out, batch 0."""
    for activation, y in FORWARD.items():
        op = UnidirectionalSequenceRnn(activation=activation, time_major=True)
        yield Case(activation, op, (X, *WAY), (y[-1], y), atol=ATOL)
        first = UnidirectionalSequenceRnn(activation=activation)
        yield Case(f"{activation}_batch_first", first, (X.swapaxes(0, 1), W, R, B), (y[-1], y.swapaxes(0, 1)), atol=ATOL)
    y = FORWARD["relu"]
    none = UnidirectionalSequenceRnn(activation="relu", time_major=True)
    yield Case("batch_0", none, (X[:, :0], W, R), (y[0, :0], y[:, :0]))
