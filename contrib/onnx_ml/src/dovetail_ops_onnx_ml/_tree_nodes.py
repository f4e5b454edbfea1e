"""The attributes that TreeEnsembleClassifier and TreeEnsembleRegressor share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.locks import cached_property
from dovetail.op import OperatorError
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator
from dovetail_ops_onnx_ml._ensemble import Ensemble
from dovetail_ops_onnx_ml._trees import Leaves, NodeTable, integers

__all__ = ["TreeNodes"]


class TreeNodes(MachineLearningOperator):
    """Trees with one element of each attribute `nodes_...` for each node."""

    nodes_treeids: tuple[int, ...] = ()
    nodes_nodeids: tuple[int, ...] = ()
    nodes_featureids: tuple[int, ...] = ()
    nodes_modes: tuple[str, ...] = ()
    nodes_values: tuple[float, ...] = ()
    nodes_truenodeids: tuple[int, ...] = ()
    nodes_falsenodeids: tuple[int, ...] = ()
    nodes_missing_value_tracks_true: tuple[int, ...] = ()
    nodes_hitrates: tuple[float, ...] = ()
    base_values: tuple[float, ...] = ()
    post_transform: str = "NONE"

    def numbers(self, name: str) -> Array:
        """An attribute, or the tensor that later versions may have in its place, as numbers."""
        tensor: NDArray[Any] | None = getattr(self, f"{name}_as_tensor", None)
        given = np.array(getattr(self, name), np.float32) if tensor is None or tensor.size == 0 else tensor.reshape(-1)
        return np.asarray(given)

    def built(self, side: str, targets: int, how: str) -> Ensemble:
        """The trees, and what their leaves hold: `class_...` or `target_...`, of so many targets. Raises `OperatorError`."""
        table = NodeTable(self.nodes_treeids, self.nodes_nodeids, self.nodes_modes)
        trees = table.trees(
            self.nodes_featureids,
            self.numbers("nodes_values"),
            self.nodes_truenodeids,
            self.nodes_falsenodeids,
            self.nodes_missing_value_tracks_true,
        )
        weight = self.numbers(f"{side}_weights")
        treeids, nodeids, ids = (getattr(self, f"{side}_{name}") for name in ("treeids", "nodeids", "ids"))
        if not len(treeids) == len(nodeids) == len(ids) == len(weight):
            counts = f"{len(treeids)}, {len(nodeids)}, {len(ids)}, {len(weight)}"
            raise OperatorError(f"the attributes '{side}_...' have {counts} elements; accepted: as many of each")
        leaf = table.leaf(treeids, nodeids, f"{side}_nodeids")
        target = integers(ids)
        if np.any((target < 0) | (target >= targets)):
            raise OperatorError(
                f"attribute '{side}_ids' goes from {target.min()} to {target.max()}; accepted: 0 to {targets - 1}"
            )
        own = leaf >= 0
        leaves = Leaves(table.leaves, leaf[own], target[own], weight[own])
        return Ensemble(trees, leaves.for_one_target if targets == 1 else leaves, targets, how)

    def based(self, scores: Array) -> Array:
        """Scores [samples, targets] with `base_values`. Raises `OperatorError` for other than one for each target, or none."""
        base = self._base
        if base.size not in (0, scores.shape[1]):
            raise OperatorError(f"attribute 'base_values' has {base.size} numbers; accepted: {scores.shape[1]}, or none")
        return scores + base.astype(scores.dtype) if base.size else scores

    @cached_property
    def _base(self) -> Array:
        return self.numbers("base_values")
