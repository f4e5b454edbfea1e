"""Cases of BidirectionalSequenceRnn: TIM-VX's golden numbers."""

from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_tim_vx.bidirectional_sequence_rnn import BidirectionalSequenceRnn
from dovetail_ops_tim_vx.cases._sequences import ATOL, BACKWARD, FORWARD, WAY, X


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Both golden activations, merged and apart, time and batch first, batch 0."""
    for activation in FORWARD:
        fw, bw = FORWARD[activation], BACKWARD[activation]
        inputs, states = (X, *WAY, *WAY), (fw[-1], bw[0])
        op = BidirectionalSequenceRnn(activation=activation, time_major=True)
        yield Case(activation, op, inputs, (*states, fw, bw), atol=ATOL)
        merged = BidirectionalSequenceRnn(activation=activation, merge_outputs=True)
        both = np.concatenate([fw, bw], axis=2).swapaxes(0, 1)
        yield Case(f"{activation}_merged", merged, (X.swapaxes(0, 1), *WAY, *WAY), (*states, both), atol=ATOL)
    fw, bw = FORWARD["relu"][:, :0], BACKWARD["relu"][:, :0]
    none = BidirectionalSequenceRnn(activation="relu", time_major=True)
    empty = (*WAY[:4], WAY[4][:0])
    yield Case("batch_0", none, (X[:, :0], *empty, *empty), (fw[0], bw[0], fw, bw))
