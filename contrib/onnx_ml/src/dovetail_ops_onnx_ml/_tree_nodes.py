"""The attributes that TreeEnsembleClassifier and TreeEnsembleRegressor share."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import OperatorError
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator
from dovetail_ops_onnx_ml._trees import Leaves, Trees, entries, of_nodes

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

    def built(self, side: str, targets: int) -> tuple[Trees, Leaves]:
        """The trees, and what their leaves hold: `class_...` or `target_...`, of so many targets. Raises `OperatorError`."""
        trees, place = of_nodes(
            self.nodes_treeids,
            self.nodes_nodeids,
            self.nodes_modes,
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
        leaf = [place.get(pair, -1) for pair in zip(treeids, nodeids, strict=True)]
        if -1 in leaf:
            raise OperatorError(f"attribute '{side}_nodeids' names node {nodeids[leaf.index(-1)]}, which the tree does not have")
        if any(not 0 <= target < targets for target in ids):
            raise OperatorError(f"attribute '{side}_ids' goes from {min(ids)} to {max(ids)}; accepted: 0 to {targets - 1}")
        return trees, entries(np.array(leaf, np.int64), np.array(ids, np.int64), weight, len(self.nodes_nodeids))

    def base(self, targets: int) -> Array:
        """`base_values`, 0 where there are none. Raises `OperatorError` for other than one for each target."""
        found = self.numbers("base_values").astype(np.float64)
        if found.size not in (0, targets):
            raise OperatorError(f"attribute 'base_values' has {found.size} numbers; accepted: {targets}, or none")
        return found if found.size else np.zeros(targets)
