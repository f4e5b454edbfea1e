"""Cases of BidirectionalSequenceRnnExt: TIM-VX's golden numbers."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_tim_vx.bidirectional_sequence_rnn_ext import BidirectionalSequenceRnnExt
from dovetail_ops_tim_vx.cases._sequences import ATOL, BACKWARD, FORWARD, extended


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both golden activations, with weights as inputs and as constants, the state left out."""
    for activation in FORWARD:
        op = BidirectionalSequenceRnnExt(activation=activation)
        y = np.stack([FORWARD[activation], BACKWARD[activation]], axis=1)
        state = np.stack([y[-1, 0], y[0, 1]])
        yield Case(activation, op, extended(2), (state, y), atol=ATOL)
        yield Case(f"{activation}_constant", op, extended(2)[:4], (state, y), atol=ATOL, constants=(1, 2, 3))
