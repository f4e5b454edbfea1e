"""Cases of NegativeLogLikelihoodLoss: element by element in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._losses import losses
from dovetail_ops_onnx.negative_log_likelihood_loss import NegativeLogLikelihoodLoss


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `losses`."""

    def loss(x: Any, target: Any, weight: Any, ignore: int | None, reduction: str) -> tuple[Any, ...]:
        return (reduced(x.astype(np.float64), target, weight, ignore, reduction).astype(x.dtype),)

    yield from losses(rng, NegativeLogLikelihoodLoss, loss)


def reduced(x: Any, target: Any, weight: Any, ignore: int | None, reduction: str) -> Any:
    """The loss in float64, place by place."""
    result, total = np.zeros(target.shape), 0.0
    for place, value in np.ndenumerate(target):
        if value != ignore:
            share = 1.0 if weight is None else float(weight[value])
            result[place] = -share * x[(place[0], int(value), *place[1:])]
            total += share
    if reduction == "none":
        return result
    return np.asarray(result.sum() / total if reduction == "mean" else result.sum())
