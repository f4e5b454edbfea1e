"""NegativeLogLikelihoodLoss: https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html."""

import numpy as np

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._places import places_along
from dovetail_ops_onnx._shapes import are_below
from dovetail_ops_onnx._types import INDICES, Array


class NegativeLogLikelihoodLoss(Operator):
    """-input [N, C, d1, ...] at the class of each target [N, d1, ...], weighted by class, reduced by `reduction`.

    Targets equal to `ignore_index` count nothing. `mean` divides by the sum of the weights.
    """

    since = 12
    inputs = ("input: T", "target: Tind", "weight?: T")
    outputs = ("loss: T",)
    types = {"T": FLOATS, "Tind": INDICES}

    ignore_index: int | None = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        if self.reduction not in ("none", "mean", "sum"):
            raise OperatorError(f"attribute 'reduction' is {self.reduction!r}; accepted: none, mean, sum")

    def infer(self, x: TensorType, target: TensorType, weight: TensorType | None = None) -> TensorType:
        """The target's shape, or a scalar."""
        if x.rank < 2 or (x.dims[0], *x.dims[2:]) != target.dims:
            raise ShapeError(f"input 'input' is {x}, 'target' {target}; accepted: [N, C, d1, ...] and [N, d1, ...]")
        if weight is not None and weight.dims != x.dims[1:2]:
            raise ShapeError(f"input 'weight' is {weight}; accepted: [{x.dims[1]}]")
        return x.with_shape(target.dims if self.reduction == "none" else ())

    def reference(self, x: Array, target: Array, weight: Array | None = None) -> Array:
        """The loss. Raises `OperatorError` for a target that is not a class."""
        classes, counts = x.shape[1], None if self.ignore_index is None else target != self.ignore_index
        at = target if counts is None else np.where(counts, target, 0)
        if at.size and not are_below(at, classes):
            raise OperatorError(f"a target is outside 0 to {classes - 1}", hint="or ignore it by ignore_index")
        chosen = wide(x.reshape(-1)[places_along(np.expand_dims(at, 1), 1, x.shape)].squeeze(1))
        weights = None if weight is None else wide(weight)[at]
        if counts is not None:
            weights = counts.astype(chosen.dtype) if weights is None else np.where(counts, weights, 0)
        with np.errstate(all="ignore"):
            loss = -chosen if weights is None else -chosen * weights
            if counts is not None:
                loss = np.where(counts, loss, 0)
            if self.reduction == "mean":
                loss = loss.sum() / (chosen.dtype.type(at.size) if weights is None else weights.sum())
            elif self.reduction == "sum":
                loss = loss.sum()
        return np.asarray(loss).astype(x.dtype)
