"""SoftmaxCrossEntropyLoss: https://onnx.ai/onnx/operators/onnx__SoftmaxCrossEntropyLoss.html."""

from dovetail.op import FLOATS, GraphBuilder, Operator, TensorType
from dovetail_ops_onnx._types import INDICES, Array
from dovetail_ops_onnx.log_softmax import LogSoftmax
from dovetail_ops_onnx.negative_log_likelihood_loss import NegativeLogLikelihoodLoss


class SoftmaxCrossEntropyLoss(Operator):
    """NegativeLogLikelihoodLoss of LogSoftmax along the classes; the second output is the LogSoftmax."""

    since = 12
    inputs = ("scores: T", "labels: Tind", "weights?: T")
    outputs = ("output: T", "log_prob?: T")
    types = {"T": FLOATS, "Tind": INDICES}

    ignore_index: int | None = None
    reduction: str = "mean"

    def __post_init__(self) -> None:
        self._loss()

    def infer(self, scores: TensorType, labels: TensorType, weights: TensorType | None = None) -> tuple[TensorType, ...]:
        """The loss, and the type of the scores."""
        return self._loss().infer(scores, labels, weights), scores.with_shape(scores.dims)

    def reference(self, scores: Array, labels: Array, weights: Array | None = None) -> tuple[Array, ...]:
        """Loss and logarithms."""
        logarithms = LogSoftmax(axis=1).reference(scores)
        return self._loss().reference(logarithms, labels, weights), logarithms

    def compose(self, g: GraphBuilder, scores: str, labels: str, weights: str) -> tuple[str, ...]:
        """LogSoftmax, then the loss."""
        logarithms = g.node(LogSoftmax(axis=1), scores)
        return g.node(self._loss(), logarithms, labels, weights), logarithms

    def _loss(self) -> NegativeLogLikelihoodLoss:
        return NegativeLogLikelihoodLoss(ignore_index=self.ignore_index, reduction=self.reduction)
