"""NegativeLogLikelihoodLoss, made of operators that have derivatives."""

from typing import Any

from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx_training.values import ones_like, select


def compose(op: Any, inputs: Any) -> Any:
    """the scores of the targets, weighted, negative; summed, averaged, or as they are."""
    scores, target, weight = (*inputs, None)[:3]
    ignored = None if op.ignore_index is None else target.apply(Equal(), op.ignore_index)
    labels = target if ignored is None else select(ignored, 0, target)
    picked = scores.apply(GatherElements(axis=1), labels.reshape((target.dims[0], 1, *target.dims[1:]))).reshape(target.dims)
    weights = ones_like(picked) if weight is None else weight.apply(Gather(), labels)
    weights = weights if ignored is None else select(ignored, 0, weights)
    loss = -picked * weights
    if op.reduction == "none":
        return loss
    total = loss.sum(range(loss.rank), keepdims=False)
    return total if op.reduction == "sum" else total / weights.sum(range(loss.rank), keepdims=False)
