"""TreeEnsembleRegressor. https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsembleRegressor.html"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.locks import cached_property
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import NUMBERS, Array, samples, table
from dovetail_ops_onnx_ml._ensemble import Ensemble
from dovetail_ops_onnx_ml._scores import check_transform, transformed
from dovetail_ops_onnx_ml._tree_nodes import TreeNodes

__all__ = ["AGGREGATES", "TreeEnsembleRegressor_1", "TreeEnsembleRegressor_3"]

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")
"""The values of `aggregate_function`, by their number in TreeEnsemble."""


class TreeEnsembleRegressor_1(TreeNodes):
    """Y = sum, mean, minimum or maximum over trees of what the leaves hold for each target, and the base values; transformed."""

    inputs = ("X: T",)
    outputs = ("Y: float32",)
    types = {"T": NUMBERS}
    target_treeids: tuple[int, ...] = ()
    target_nodeids: tuple[int, ...] = ()
    target_ids: tuple[int, ...] = ()
    target_weights: tuple[float, ...] = ()
    n_targets: int = 1
    aggregate_function: str = "SUM"

    def __post_init__(self) -> None:
        check_transform(self.post_transform)
        if self.aggregate_function not in AGGREGATES or self.n_targets < 1:
            given = f"'aggregate_function' {self.aggregate_function!r}, 'n_targets' {self.n_targets}"
            raise OperatorError(f"attributes {given}; accepted: {', '.join(AGGREGATES)}; 1 or more")

    def infer(self, X: TensorType) -> TensorType:
        """[samples, targets]."""
        return TensorType(DType.FLOAT32, (samples(X)[0], self.n_targets))

    def reference(self, X: Array) -> Array:
        """Summed in float32, of float64 inputs in float64."""
        ensemble = self._built
        x = table(X)
        y = ensemble.total(x)
        y = y / ensemble.trees.roots.size if self.aggregate_function == "AVERAGE" else y
        return transformed(self.based(y), self.post_transform).astype(np.float32, copy=False)

    @cached_property
    def _built(self) -> Ensemble:
        return self.built("target", self.n_targets, self.aggregate_function)


class TreeEnsembleRegressor_3(TreeEnsembleRegressor_1):
    """Numbers may also be tensors."""

    since = 3
    base_values_as_tensor: NDArray[Any] | None = None
    nodes_hitrates_as_tensor: NDArray[Any] | None = None
    nodes_values_as_tensor: NDArray[Any] | None = None
    target_weights_as_tensor: NDArray[Any] | None = None
