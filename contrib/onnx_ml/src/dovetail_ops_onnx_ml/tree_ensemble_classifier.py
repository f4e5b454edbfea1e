"""TreeEnsembleClassifier. https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleClassifier.html"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.locks import cached_property
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import NUMBERS, Array, classes_of, labels, samples, table
from dovetail_ops_onnx_ml._ensemble import Ensemble
from dovetail_ops_onnx_ml._scores import check_one_score, check_transform, transformed, two_classes
from dovetail_ops_onnx_ml._tree_nodes import TreeNodes

__all__ = ["TreeEnsembleClassifier_1", "TreeEnsembleClassifier_3"]


class TreeEnsembleClassifier_1(TreeNodes):
    """Z = the sums over trees of what the leaves hold for each class, transformed; Y = the label of the greatest.

    Without base values, classes of which no leaf that was reached holds anything take no part in that.
    With two labels and leaves that hold one class only, that class' score decides: above 0.5 where no weight is negative, else
    above 0.
    """

    inputs = ("X: T1",)
    outputs = ("Y: T2", "Z: float32")
    types = {"T1": NUMBERS, "T2": frozenset({DType.STRING, DType.INT64})}
    class_treeids: tuple[int, ...] = ()
    class_nodeids: tuple[int, ...] = ()
    class_ids: tuple[int, ...] = ()
    class_weights: tuple[float, ...] = ()
    classlabels_int64s: tuple[int, ...] = ()
    classlabels_strings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_transform(self.post_transform)
        if self._binary:
            check_one_score(self.post_transform)

    def infer(self, X: TensorType) -> tuple[TensorType, TensorType]:
        """[samples] labels and [samples, classes] scores."""
        count, _ = samples(X)
        width = len(classes_of(self.classlabels_int64s, self.classlabels_strings))
        return labels(self.classlabels_int64s, self.classlabels_strings, count), TensorType(DType.FLOAT32, (count, width))

    def reference(self, X: Array) -> tuple[Array, Array]:
        """Summed in float32, of float64 inputs in float64."""
        x = table(X)
        scores = self.based(self._built.total(x))
        if self._binary:
            score, share = scores[:, 0], self._share
            chosen = self._labels.take(score > (0.5 if share else 0))
            return chosen, two_classes(score, self.post_transform, positive=share).astype(np.float32, copy=False)
        # A score that is not 0 was held by some leaf.
        all_held = self._base.size or scores.all()
        held = scores if all_held else np.where(self._built.held(x), scores, -np.inf)
        return self._labels.take(held.argmax(axis=1)), transformed(scores, self.post_transform).astype(np.float32, copy=False)

    @cached_property
    def _labels(self) -> Array:
        return classes_of(self.classlabels_int64s, self.classlabels_strings)

    @cached_property
    def _share(self) -> bool:
        return not np.any(self.numbers("class_weights") < 0)

    @cached_property
    def _binary(self) -> bool:
        return len(set(self.class_ids)) == 1 and len(self._labels) == 2

    @cached_property
    def _built(self) -> Ensemble:
        if not self.class_ids:
            raise OperatorError("attribute 'class_ids' is empty; accepted: at least one")
        built = self.built("class", len(self._labels), "SUM")
        return replace(built, targets=1, leaves=built.leaves.for_one_target) if self._binary else built


class TreeEnsembleClassifier_3(TreeEnsembleClassifier_1):
    """Numbers may also be tensors."""

    since = 3
    base_values_as_tensor: NDArray[Any] | None = None
    class_weights_as_tensor: NDArray[Any] | None = None
    nodes_hitrates_as_tensor: NDArray[Any] | None = None
    nodes_values_as_tensor: NDArray[Any] | None = None
