"""Cases of SoftmaxCrossEntropyLoss: element by element in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.cases._losses import losses
from dovetail_ops_onnx.cases.negative_log_likelihood_loss import reduced
from dovetail_ops_onnx.softmax_cross_entropy_loss import SoftmaxCrossEntropyLoss


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """See `losses`."""

    def loss(x: Any, target: Any, weight: Any, ignore: int | None, reduction: str) -> tuple[Any, ...]:
        powers = np.exp(x.astype(np.float64))
        logarithms = np.log(powers / powers.sum(1, keepdims=True))
        return reduced(logarithms, target, weight, ignore, reduction).astype(x.dtype), logarithms.astype(x.dtype)

    yield from losses(rng, SoftmaxCrossEntropyLoss, loss)
