"""SVMClassifier. https://onnx.ai/onnx/operators/onnx_aionnxml_SVMClassifier.html"""

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import NUMBERS, Array, MachineLearningOperator, classes_of, labels, product, rows, samples, table
from dovetail_ops_onnx_ml._scores import check_one_score, check_transform, logistic, transformed, two_classes
from dovetail_ops_onnx_ml._svm import Kernel, check_kernel, coupled

__all__ = ["SVMClassifier"]

_LEAST = 1e-7


class SVMClassifier(MachineLearningOperator):
    """Each pair of classes votes by its support vectors; Y = the label with most votes, the first of equal ones.

    Z has the pairs' scores, or with `prob_a` and `prob_b` the probability of each class; transformed. Without vectors
    each class has a score of its own, and the greatest decides. With two labels and one score, Z has it with both signs.
    """

    inputs = ("X: T1",)
    outputs = ("Y: T2", "Z: float32")
    types = {"T1": NUMBERS, "T2": frozenset({DType.STRING, DType.INT64})}
    classlabels_ints: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()
    coefficients: tuple[float, ...] = ()
    rho: tuple[float, ...] = ()
    prob_a: tuple[float, ...] = ()
    prob_b: tuple[float, ...] = ()
    support_vectors: tuple[float, ...] = ()
    vectors_per_class: tuple[int, ...] = ()
    kernel_type: str = "LINEAR"
    kernel_params: tuple[float, ...] = ()
    post_transform: str = "NONE"

    def __post_init__(self) -> None:
        check_transform(self.post_transform)
        check_kernel(self)

    def infer(self, X: TensorType) -> tuple[TensorType, TensorType]:
        """[samples] labels and [samples, scores] scores. Raises `OperatorError` for attributes that do not fit each other."""
        self._check()
        count, _ = samples(X)
        classes = len(classes_of(self.classlabels_ints, self.classlabels_strings))
        width = classes if self.prob_a or not sum(self.vectors_per_class) else classes * (classes - 1) // 2
        both = width == 1 and classes == 2
        scores = TensorType(DType.FLOAT32, (count, 2 if both else width))
        return labels(self.classlabels_ints, self.classlabels_strings, count), scores

    def reference(self, X: Array) -> tuple[Array, Array]:
        """Computed in float64."""
        classes = self._classes
        if not sum(self.vectors_per_class):
            weights = self._weights
            x = table(X, weights.shape[1], "the coefficients are for").astype(np.float64)
            scores = x @ weights.T + self.rho[0]
            return classes.take(scores.argmax(axis=1)), transformed(scores, self.post_transform).astype(np.float32)
        scores = self._of_pairs(X)
        chosen = classes.take(self._votes(scores).argmax(axis=1))
        if self.prob_a:
            scores = self._probabilities(scores, len(classes))
        if scores.shape[1] == 1 and len(classes) == 2:
            share = self.post_transform != "NONE"
            return chosen, two_classes(scores[:, 0], self.post_transform, positive=share).astype(np.float32)
        return chosen, transformed(scores, self.post_transform).astype(np.float32)

    @cached_property
    def _classes(self) -> Array:
        return classes_of(self.classlabels_ints, self.classlabels_strings)

    @cached_property
    def _weights(self) -> Array:
        """Coefficients: of each class without vectors; else of the vectors against each of the other classes."""
        has_vectors = sum(self.vectors_per_class) > 0
        return rows(self.coefficients, len(self._classes) - has_vectors, "coefficients")

    @cached_property
    def _kernel(self) -> Kernel:
        vectors = rows(self.support_vectors, sum(self.vectors_per_class), "support_vectors")
        return Kernel(vectors, self.kernel_type, self.kernel_params)

    @cached_property
    def _pairs(self) -> tuple[Array, Array]:
        """The first and the second class of each pair."""
        return np.triu_indices(len(self._classes), 1)

    def _check(self) -> None:
        count = len(self.classlabels_ints or self.classlabels_strings)
        pairs = count * (count - 1) // 2
        if sum(self.vectors_per_class) and pairs == 1 and not self.prob_a:
            check_one_score(self.post_transform)
        if self.vectors_per_class and (len(self.vectors_per_class) != count or min(self.vectors_per_class) < 0):
            given = f"attribute 'vectors_per_class' is {self.vectors_per_class}"
            raise OperatorError(f"{given}; accepted: a count for each of {count} labels")
        wanted = {"rho": pairs if sum(self.vectors_per_class) else 1, "prob_a": pairs, "prob_b": pairs}
        for name, size in wanted.items():
            found = len(getattr(self, name))
            if found < size and (found or name == "rho" or (name == "prob_b" and self.prob_a)):
                raise OperatorError(f"attribute {name!r} has {found} numbers; accepted: {size}, one for each pair of classes")

    def _of_pairs(self, X: Array) -> Array:
        """The score of each pair of classes [samples, pairs]: above 0 is for the first."""
        kernel, weights = self._kernel, self._weights
        near = kernel(table(X, kernel.vectors.shape[1], "the vectors have").astype(np.float64))
        sums = np.empty((len(self._classes), near.shape[0], weights.shape[0]))
        end = 0
        for of_class, count in zip(sums, self.vectors_per_class, strict=True):
            own = slice(end, end := end + count)
            of_class[...] = product(near[:, own], weights[:, own].T)
        first, second = self._pairs
        scores: Array = (sums[first, :, second - 1] + sums[second, :, first]).T
        scores += np.array(self.rho[: first.size])
        return scores

    def _votes(self, scores: Array) -> Array:
        first, second = self._pairs
        votes = np.zeros((scores.shape[0], len(self._classes)))
        np.add.at(votes, (np.arange(scores.shape[0])[:, None], np.where(scores > 0, first, second)), 1)
        return votes

    def _probabilities(self, scores: Array, classes: int) -> Array:
        """Platt's, for each pair, coupled."""
        pairs = np.zeros((scores.shape[0], classes, classes))
        first, second = self._pairs
        share = 1 - logistic(scores * np.array(self.prob_a[: first.size]) + np.array(self.prob_b[: first.size]))
        pairs[:, first, second] = np.clip(share, _LEAST, 1 - _LEAST)
        pairs[:, second, first] = 1 - pairs[:, first, second]
        return coupled(pairs)
