"""TreeEnsemble. https://onnx.ai/onnx/operators/onnx_aionnxml_TreeEnsemble.html"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.locks import cached_property
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator, samples
from dovetail_ops_onnx_ml._ensemble import Ensemble
from dovetail_ops_onnx_ml._scores import TRANSFORMS, transformed
from dovetail_ops_onnx_ml._trees import MODES, Leaves, Trees, integers
from dovetail_ops_onnx_ml.tree_ensemble_regressor import AGGREGATES

__all__ = ["TreeEnsemble"]

_SIDES = ("nodes_truenodeids", "nodes_falsenodeids", "nodes_trueleafs", "nodes_falseleafs")


class TreeEnsemble(MachineLearningOperator):
    """Y = sum, mean, minimum or maximum over trees of the weights of leaves for each target, transformed.

    Nodes test a feature against `nodes_splits`, or look it up in their list of `membership_values`; where a node leads is the
    number of a node, or of a leaf where `nodes_trueleafs` and `nodes_falseleafs` say so.
    """

    since = 5
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": frozenset({DType.FLOAT16, DType.FLOAT32, DType.FLOAT64})}
    nodes_featureids: tuple[int, ...]
    nodes_splits: NDArray[Any]
    nodes_modes: NDArray[Any]
    nodes_truenodeids: tuple[int, ...]
    nodes_falsenodeids: tuple[int, ...]
    nodes_trueleafs: tuple[int, ...]
    nodes_falseleafs: tuple[int, ...]
    leaf_targetids: tuple[int, ...]
    leaf_weights: NDArray[Any]
    tree_roots: tuple[int, ...]
    n_targets: int = 1
    membership_values: NDArray[Any] | None = None
    nodes_missing_value_tracks_true: tuple[int, ...] = ()
    nodes_hitrates: NDArray[Any] | None = None
    aggregate_function: int = 1
    post_transform: int = 0

    def __post_init__(self) -> None:
        for name, count in (("aggregate_function", len(AGGREGATES)), ("post_transform", len(TRANSFORMS))):
            if not 0 <= getattr(self, name) < count:
                raise OperatorError(f"attribute {name!r} is {getattr(self, name)}; accepted: 0 to {count - 1}")
        if self.n_targets < 1:
            raise OperatorError(f"attribute 'n_targets' is {self.n_targets}; accepted: 1 or more")

    def infer(self, X: TensorType) -> TensorType:
        """[samples, targets]."""
        return X.with_shape((samples(X)[0], self.n_targets))

    def reference(self, X: Array) -> Array:
        """Summed in float32, of float64 inputs in float64."""
        x = X.reshape(samples(TensorType.of(X)))
        y = self._built.total(x.astype(np.promote_types(x.dtype, np.float32)))
        y = y / len(self.tree_roots) if AGGREGATES[self.aggregate_function] == "AVERAGE" else y
        return transformed(y, TRANSFORMS[self.post_transform]).astype(X.dtype)

    @cached_property
    def _built(self) -> Ensemble:
        count, leaves = len(self.nodes_featureids), len(self.leaf_targetids)
        mode = self.nodes_modes.reshape(-1).astype(np.int64)
        columns = {"nodes_splits": self.nodes_splits.size, "nodes_modes": self.nodes_modes.size}
        columns |= {name: len(getattr(self, name)) for name in _SIDES} | {"leaf_weights": self.leaf_weights.size}
        for name, size in columns.items():
            if size != (leaves if name == "leaf_weights" else count):
                raise OperatorError(f"attribute {name!r} has {size} elements, for {count} nodes and {leaves} leaves")
        if np.any(mode >= len(MODES)):
            raise OperatorError(f"attribute 'nodes_modes' has {mode.max()}; accepted: 0 to {len(MODES) - 1}")
        feature, target, roots = (integers(ids) for ids in (self.nodes_featureids, self.leaf_targetids, self.tree_roots))
        for name, given, size in (
            ("nodes_featureids", feature, 2**31),
            ("leaf_targetids", target, self.n_targets),
            ("tree_roots", roots, count),
        ):
            if np.any((given < 0) | (given >= size)):
                raise OperatorError(f"attribute {name!r} goes from {given.min()} to {given.max()}; accepted: 0 to {size - 1}")
        tracks = np.zeros(count, np.bool_)
        tracks[: len(self.nodes_missing_value_tracks_true)] = np.array(self.nodes_missing_value_tracks_true, np.bool_)
        yes, no = self._side("true", count, leaves), self._side("false", count, leaves)
        trees = Trees(mode, feature, self.nodes_splits.reshape(-1), yes, no, tracks, roots, self._members(mode))
        held = Leaves(leaves, np.arange(leaves), target, self.leaf_weights.reshape(-1))
        return Ensemble(trees, held, self.n_targets, AGGREGATES[self.aggregate_function])

    def _side(self, side: str, count: int, leaves: int) -> Array:
        to = integers(getattr(self, f"nodes_{side}nodeids"))
        is_leaf = np.array(getattr(self, f"nodes_{side}leafs"), np.bool_)
        if np.any((to < 0) | (to >= np.where(is_leaf, leaves, count))):
            raise OperatorError(f"attribute 'nodes_{side}nodeids' names a node or leaf that does not exist")
        return np.where(is_leaf, ~to, to)

    def _members(self, mode: Array) -> dict[int, Array]:
        """For each node that looks up, its values: the lists one after the other, each ended by NaN."""
        nodes = np.flatnonzero(mode == MODES.index("BRANCH_MEMBER"))
        given = np.array([]) if self.membership_values is None else self.membership_values.reshape(-1)
        ends = np.flatnonzero(np.isnan(given))
        if len(nodes) != len(ends):
            raise OperatorError(f"attribute 'membership_values' has {len(ends)} lists; {len(nodes)} nodes look up in one")
        starts = [0, *(ends + 1)][:-1]
        return {int(node): given[begin:end] for node, begin, end in zip(nodes, starts, ends, strict=True)}
