"""Cases of UnidirectionalSequenceRnnExt: TIM-VX's golden numbers."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_tim_vx.cases._sequences import ATOL, FORWARD, extended
from dovetail_ops_tim_vx.unidirectional_sequence_rnn_ext import UnidirectionalSequenceRnnExt


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both golden activations, with weights as inputs and as constants, the state left out."""
    for activation, steps in FORWARD.items():
        op, y = UnidirectionalSequenceRnnExt(activation=activation), steps[:, None]
        yield Case(activation, op, extended(1), (y[-1], y), atol=ATOL)
        yield Case(f"{activation}_constant", op, extended(1)[:4], (y[-1], y), atol=ATOL, constants=(1, 2, 3))
