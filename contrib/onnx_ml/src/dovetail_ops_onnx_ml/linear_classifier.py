"""LinearClassifier. https://onnx.ai/onnx/operators/onnx_aionnxml_LinearClassifier.html"""

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import NUMBERS, Array, MachineLearningOperator, classes_of, labels, product, rows, samples, table
from dovetail_ops_onnx_ml._scores import check_one_score, check_transform, transformed, two_classes

__all__ = ["LinearClassifier"]


class LinearClassifier(MachineLearningOperator):
    """Z = X coefficients' + intercepts, transformed; Y = the label of the greatest score.

    With coefficients of one class and two labels, the second label is that of scores above 0.
    """

    inputs = ("X: T1",)
    outputs = ("Y: T2", "Z: float32")
    types = {"T1": NUMBERS, "T2": frozenset({DType.STRING, DType.INT64})}
    coefficients: tuple[float, ...]
    intercepts: tuple[float, ...] = ()
    classlabels_ints: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    multi_class: int = 0
    post_transform: str = "NONE"

    def __post_init__(self) -> None:
        check_transform(self.post_transform)

    def infer(self, X: TensorType) -> tuple[TensorType, TensorType]:
        """[samples] labels and [samples, classes] scores. Raises `OperatorError` for attributes that do not fit each other."""
        self._check()
        count, _ = samples(X)
        classes = classes_of(self.classlabels_ints, self.classlabels_strings)
        width = 2 if self._targets() == 1 and len(classes) == 2 else self._targets()
        return labels(self.classlabels_ints, self.classlabels_strings, count), TensorType(DType.FLOAT32, (count, width))

    def reference(self, X: Array) -> tuple[Array, Array]:
        """Computed in float64."""
        classes, weights, intercepts = self._numbers
        scores = product(table(X, len(weights), "the coefficients are for"), weights)
        scores += intercepts
        if weights.shape[1] > 1:
            return classes.take(scores.argmax(axis=1)), transformed(scores, self.post_transform).astype(np.float32)
        pair = classes if len(classes) == 2 else np.array(["0", "1"], object) if classes.dtype == object else np.array([0, 1])
        chosen = pair.take(scores[:, 0] > 0)
        if len(classes) != 2:
            return chosen, transformed(scores, self.post_transform).astype(np.float32)
        return chosen, two_classes(scores[:, 0], self.post_transform, positive=True).astype(np.float32)

    @cached_property
    def _numbers(self) -> tuple[Array, Array, Array]:
        """Labels, coefficients [features, targets], intercepts."""
        classes = classes_of(self.classlabels_ints, self.classlabels_strings)
        weights = np.ascontiguousarray(rows(self.coefficients, self._targets(), "coefficients").T)
        return classes, weights, np.array(self.intercepts or 0.0)

    def _check(self) -> None:
        count = len(self.classlabels_ints or self.classlabels_strings)
        if self._targets() == 1 and count == 2:
            check_one_score(self.post_transform)
        elif count != self._targets():
            raise OperatorError(f"there are {self._targets()} intercepts and {count} labels; accepted: as many")

    def _targets(self) -> int:
        return max(1, len(self.intercepts))
