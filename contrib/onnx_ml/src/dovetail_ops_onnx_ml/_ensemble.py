"""Ensembles of trees: the totals over the trees of what the leaves that samples reach hold."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from dovetail.locks import cached_property
from dovetail_ops_onnx_ml._base import Array
from dovetail_ops_onnx_ml._tree_walk import Slots, slots_of
from dovetail_ops_onnx_ml._trees import Leaves, Trees

__all__ = ["Ensemble"]

_AGGREGATES: dict[str, tuple[np.ufunc, float]] = {"MIN": (np.minimum, np.inf), "MAX": (np.maximum, -np.inf)}
_SUM = (np.add, 0.0)

_WALKS = 2**15
"""Walks of a sample in a tree that are made at once: their arrays fit the cache."""
_SAMPLES = 2048
"""Samples that are made at once at most, so that the nodes of few trees are in the cache."""
_FEW = 8
"""Sums that are made along with all sums before the last tree."""
_DENSE = 2**20
"""Numbers that a table of all nodes and targets may have in any case."""
_SPARSE = 8
"""Numbers that it may have for each entry that is not 0."""


@dataclass(frozen=True)
class Ensemble:
    """Trees, and what their leaves hold for some targets."""

    trees: Trees
    leaves: Leaves
    targets: int
    how: str

    def total(self, x: Array) -> Array:
        """The sum, MIN or MAX over trees [samples, targets] of what the leaves hold, in the type of x; 0 where they hold nothing.

        Summed tree by tree in that type: five times a tenth in float32 does not exceed a half, which decides between two classes.
        """
        return (self._double if x.dtype == np.float64 else self._single).total(x)

    def held(self, x: Array) -> Array:
        """Whether the leaves that are reached hold anything for a target: [samples, targets]."""
        if self._holds_all:
            return np.ones((x.shape[0], self.targets), np.bool_)
        return (self._double_held if x.dtype == np.float64 else self._single_held).total(x) > 0

    @cached_property
    def _holds_all(self) -> bool:
        pairs = np.unique(self.leaves.leaf * self.targets + self.leaves.target)
        return pairs.size == self.leaves.count * self.targets

    @cached_property
    def _single(self) -> "_Totals":
        return self._totals(np.float32)

    @cached_property
    def _double(self) -> "_Totals":
        return self._totals(np.float64)

    @cached_property
    def _single_held(self) -> "_Totals":
        return self._counts(self._single)

    @cached_property
    def _double_held(self) -> "_Totals":
        return self._counts(self._double)

    def _counts(self, totals: "_Totals") -> "_Totals":
        """How often leaves that are reached hold something."""
        return replace(totals, leaves=replace(self.leaves, weight=np.ones_like(self.leaves.weight)), how="SUM")

    def _totals(self, dtype: Any) -> "_Totals":
        slots = slots_of(self.trees, np.promote_types(dtype, self.trees.value.dtype))
        return _Totals(slots, self.leaves, self.targets, self.how, np.dtype(dtype))


@dataclass(frozen=True)
class _Totals:
    """An ensemble for samples of one type."""

    slots: Slots
    leaves: Leaves
    targets: int
    how: str
    dtype: Any

    def total(self, x: Array) -> Array:
        table, count, trees = self.slots.table(x), x.shape[0], self.slots.trees
        if trees == 1 and table.is_small and self._dense is not None:
            y = self._ufunc(self._identity, self._dense.take(table.walk(0, 1, 0, 1)[0], axis=0))
            return y if self.how not in _AGGREGATES else np.where(np.isinf(y), 0, y)
        y = np.full((count, self.targets), self._identity, self.dtype)
        samples = min(count, _SAMPLES)
        step = max(1, _WALKS // max(1, samples))
        for first in range(0, count, _SAMPLES):
            part = y[first : first + _SAMPLES]
            for tree in range(0, trees, step):
                self._add(part, table.walk(first, first + part.shape[0], tree, min(tree + step, trees)))
        return y if self.how not in _AGGREGATES else np.where(np.isinf(y), 0, y)

    def _add(self, y: Array, at: Array) -> None:
        """Add what the leaves' slots [trees, samples] hold to y [samples, targets], in the order of the trees."""
        if self._dense is None:
            self._add_entries(y, at)
            return
        held = self._dense.take(at, axis=0)
        self._ufunc(y, held[0], out=held[0])
        if y.size < _FEW:  # faster, and of one alone `reduce` would add pairs
            y[...] = self._ufunc.accumulate(held, axis=0)[-1]
        else:
            self._ufunc.reduce(held, axis=0, out=y)

    def _add_entries(self, y: Array, at: Array) -> None:
        start, target, weight = self._entries
        leaf = self.slots.leaf.take(at.reshape(-1))
        place = np.tile(np.arange(y.shape[0]) * self.targets, at.shape[0])
        count = start[leaf + 1] - start[leaf]
        # One after the other, those of a leaf side by side.
        entry = np.arange(count.sum()) + np.repeat(start[leaf] - (np.cumsum(count) - count), count)
        flat = y.reshape(-1)  # a view: parts of y are contiguous
        self._ufunc.at(flat, np.repeat(place, count) + target[entry], weight[entry])

    @property
    def _ufunc(self) -> np.ufunc:
        return _AGGREGATES.get(self.how, _SUM)[0]

    @property
    def _identity(self) -> float:
        return _AGGREGATES.get(self.how, _SUM)[1]

    @cached_property
    def _dense(self) -> Array | None:
        """The weights of each slot for each target [slots, targets]; None where most of them would be 0."""
        leaves, slots = self.leaves, self.slots
        if slots.leaf.size * self.targets > max(_DENSE, _SPARSE * leaves.leaf.size):
            return None
        found = np.full((leaves.count + 1, self.targets), self._identity, self.dtype)
        self._ufunc.at(found, (leaves.leaf, leaves.target), leaves.weight.astype(self.dtype))
        return found[slots.leaf]

    @cached_property
    def _entries(self) -> tuple[Array, Array, Array]:
        """Entries `start[leaf]` to `start[leaf + 1]` of the targets and weights are those of a leaf."""
        leaves = self.leaves
        order = np.argsort(leaves.leaf, kind="stable")
        start = np.concatenate([[0], np.cumsum(np.bincount(leaves.leaf, minlength=leaves.count))])
        return start, leaves.target[order], leaves.weight[order].astype(self.dtype)
