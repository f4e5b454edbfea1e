"""NegativeLogLikelihoodLoss: https://onnx.ai/onnx/operators/onnx__NegativeLogLikelihoodLoss.html."""

import numpy as np

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
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
        classes = x.shape[1]
        ignored = np.zeros(target.shape, np.bool_) if self.ignore_index is None else target == self.ignore_index
        if np.any(~ignored & ((target < 0) | (target >= classes))):
            raise OperatorError(f"a target is outside 0 to {classes - 1}", hint="or ignore it by ignore_index")
        at = np.where(ignored, 0, target)
        scores = wide(x)
        weights = np.ones(target.shape, scores.dtype) if weight is None else wide(weight)[at]
        weights = np.where(ignored, 0, weights).astype(scores.dtype)
        with np.errstate(all="ignore"):
            chosen = np.take_along_axis(scores, np.expand_dims(at, 1), 1).squeeze(1)
            loss = np.where(ignored, 0, -chosen * weights)
            if self.reduction == "mean":
                loss = loss.sum() / weights.sum()
            elif self.reduction == "sum":
                loss = loss.sum()
        return np.asarray(loss).astype(x.dtype)
