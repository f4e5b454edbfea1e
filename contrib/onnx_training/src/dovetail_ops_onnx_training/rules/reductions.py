"""Reductions, running sums, Softmax and losses."""

from collections.abc import Callable, Mapping
from typing import Any

from dovetail_ops_onnx.cum_sum import CumSum
from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.exp import Exp
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.log import Log
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.sign import Sign
from dovetail_ops_onnx_training.values import Value, ones_like, select

__all__ = ["COMPOSITIONS", "DERIVATIVES"]


def _to_chosen(x: Value, y: Value, dy: Value) -> Value:
    """dY in equal parts for the elements of X that equal Y."""
    chosen = x.apply(Equal(), y.expand(x.dims)).cast(x.dtype)
    return chosen * (
        dy / chosen.sum([axis for axis, (wide, narrow) in enumerate(zip(x.dims, y.dims, strict=True)) if wide != narrow])
    )


_OF_REDUCTIONS: Mapping[str, Callable[[Value, Value, Value], Value]] = {
    "ReduceL1": lambda x, y, dy: dy * x.apply(Sign()),
    "ReduceL2": lambda x, y, dy: x * (dy / select(y.apply(Equal(), 0), 1, y)),
    "ReduceLogSumExp": lambda x, y, dy: dy * (x - y).apply(Exp()),
    "ReduceMax": _to_chosen,
    "ReduceMean": lambda x, y, dy: (dy / max(1, x.type.size // max(1, dy.type.size))).expand(x.dims),
    "ReduceMin": _to_chosen,
    "ReduceSum": lambda x, y, dy: dy.expand(x.dims),
    "ReduceSumSquare": lambda x, y, dy: 2 * x * dy,
}
"""From X, and Y and dY with size 1 along the axes that were reduced."""


def _of_reduction(rule: Callable[[Value, Value, Value], Value]) -> Callable[[Any, Any, Any, Any], Any]:
    def derivative(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
        x, axes = (*inputs, None)[:2]
        reduced = op.reduced_axes(x.rank, None if axes is None else axes.known)
        dims = tuple(1 if axis in reduced else size for axis, size in enumerate(x.dims))
        return rule(x, outputs[0].reshape(dims), gradients[0].reshape(dims))

    return derivative


def _cum_sum(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    return gradients[0].apply(CumSum(exclusive=op.exclusive, reverse=not op.reverse), inputs[1])


def _softmax(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = Y (dY - sum(dY Y))."""
    y, dy = outputs[0], gradients[0]
    total = (dy * y).sum(_softmax_axes(op, y.rank))
    return y * (dy - total)


def _log_softmax(op: Any, inputs: Any, outputs: Any, gradients: Any) -> Any:
    """dX = dY - exp(Y) sum(dY)."""
    y, dy = outputs[0], gradients[0]
    return dy - y.apply(Exp()) * dy.sum(_softmax_axes(op, y.rank))


def _softmax_axes(op: Any, rank: int) -> list[int]:
    """One axis, or all from one on before operator set 13."""
    axis = op.axis % max(1, rank)
    return [axis] if op.since >= 13 else list(range(axis, rank))


DERIVATIVES: Mapping[str, Callable[[Any, Any, Any, Any], Any]] = {
    **{op_type: _of_reduction(rule) for op_type, rule in _OF_REDUCTIONS.items()},
    "CumSum": _cum_sum,
    "Softmax": _softmax,
    "LogSoftmax": _log_softmax,
}


def _reduce_log_sum(op: Any, inputs: Any) -> Any:
    x, axes = (*inputs, None)[:2]
    total = x.apply(ReduceSum(keepdims=op.keepdims, noop_with_empty_axes=op.noop_with_empty_axes), axes)
    return total.apply(Log())


def _negative_log_likelihood_loss(op: Any, inputs: Any) -> Any:
    """The scores of the targets, weighted, negative; summed, averaged, or as they are."""
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


COMPOSITIONS: Mapping[str, Callable[[Any, Any], Any]] = {
    "NegativeLogLikelihoodLoss": _negative_log_likelihood_loss,
    "ReduceLogSum": _reduce_log_sum,
}
