"""Trees as arrays: where samples end, and what the leaves there add up to."""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.op import OperatorError
from dovetail_ops_onnx_ml._base import Array

__all__ = ["LEAF", "MODES", "Leaves", "Trees", "entries", "of_nodes"]

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""By their numbers in TreeEnsemble."""
LEAF = len(MODES)


@dataclass(frozen=True)
class Trees:
    """`mode`, `feature`, `value`, `true`, `false` and `missing` (does NaN go to `true`?) have an element for each node; nodes of
    mode `LEAF` are leaves. `roots` has one for each tree. `members` are the values of nodes of mode BRANCH_MEMBER.
    """

    mode: Array
    feature: Array
    value: Array
    true: Array
    false: Array
    missing: Array
    roots: Array
    members: dict[int, Array]

    @functools.cached_property
    def features(self) -> int:
        """How many features the trees read at least."""
        return int(self.feature[self.mode != LEAF].max(initial=-1)) + 1

    def leaves(self, x: Array) -> Array:
        """The leaf [samples, trees] in which each sample ends. Raises `OperatorError` for trees that do not end."""
        if x.shape[1] < self.features:
            raise OperatorError(f"input 'X' has {x.shape[1]} features; the trees read {self.features}")
        at = np.tile(self.roots, (x.shape[0], 1))
        flat, row = at.reshape(-1), np.repeat(np.arange(x.shape[0]), self.roots.size)
        going = np.flatnonzero(self.mode[flat] != LEAF)
        for _ in range(self.mode.size):
            if not going.size:
                return at
            node = flat[going]
            given = x[row[going], self.feature[node]]
            flat[going] = np.where(self._holds(given, node), self.true[node], self.false[node])
            going = going[self.mode[flat[going]] != LEAF]
        if going.size:
            raise OperatorError("a tree does not end: its nodes lead back to themselves")
        return at

    def _holds(self, given: Array, node: Array) -> Array:
        value, mode = self.value[node], self.mode[node]
        tests = (np.less_equal, np.less, np.greater_equal, np.greater, np.equal, np.not_equal)
        present = self._modes
        if len(present) == 1 and present[0] < len(tests):
            found = tests[present[0]](given, value)
        else:
            found = np.zeros(given.shape, np.bool_)
            for number in present:
                chosen = mode == number
                if number < len(tests):
                    found[chosen] = tests[number](given[chosen], value[chosen])
                else:
                    found[chosen] = [g in self.members[int(n)] for g, n in zip(given[chosen], node[chosen], strict=True)]
        return found | (np.isnan(given) & self.missing[node]) if self._tracks else found

    @functools.cached_property
    def _tracks(self) -> bool:
        return bool(self.missing.any())

    @functools.cached_property
    def _modes(self) -> list[int]:
        return [int(number) for number in np.unique(self.mode) if number != LEAF]


@dataclass(frozen=True)
class Leaves:
    """The entries of leaves: entries `start[leaf]` to `start[leaf + 1]` of `target` and `weight`."""

    start: Array
    target: Array
    weight: Array

    def total(self, at: Array, targets: int, how: str, dtype: Any) -> Array:
        """The sum, MIN or MAX over trees [samples, targets] of what leaves [samples, trees] hold; 0 where they hold nothing.

        Summed tree by tree in `dtype`: five times a tenth in float32 does not exceed a half, which decides between two classes.
        """
        samples = at.shape[0]
        place = np.repeat(np.arange(samples) * targets, at.shape[1])
        leaf = at.reshape(-1)
        first, count = self.start[leaf], self.start[leaf + 1] - self.start[leaf]
        result = np.full(samples * targets, {"MIN": np.inf, "MAX": -np.inf}.get(how, 0.0), dtype)
        for k in range(int(count.max(initial=0))):
            some = count > k
            entry = first[some] + k
            where, weight = place[some] + self.target[entry], self.weight[entry].astype(dtype)
            if how == "MIN":
                np.minimum.at(result, where, weight)
            elif how == "MAX":
                np.maximum.at(result, where, weight)
            else:
                np.add.at(result, where, weight)
        return np.where(np.isinf(result), 0, result).reshape(samples, targets)

    def held(self, at: Array, targets: int) -> Array:
        """Whether the leaves [samples, trees] hold anything for a target: [samples, targets]."""
        return self._ones.total(at, targets, "SUM", np.float32) > 0

    @functools.cached_property
    def _ones(self) -> "Leaves":
        return Leaves(self.start, self.target, np.ones_like(self.weight))


def of_nodes(
    treeids: Sequence[int],
    nodeids: Sequence[int],
    modes: Sequence[str],
    features: Sequence[int],
    values: Array,
    true: Sequence[int],
    false: Sequence[int],
    missing: Sequence[int],
) -> tuple[Trees, dict[tuple[int, int], int]]:
    """Trees from the attributes of the operators before TreeEnsemble, and the place of each (tree, node)."""
    count = len(nodeids)
    counts = {"treeids": len(treeids), "modes": len(modes), "featureids": len(features), "values": len(values)}
    counts |= {"truenodeids": len(true), "falsenodeids": len(false)}
    for name, found in counts.items():
        if found != count:
            raise OperatorError(f"attribute 'nodes_{name}' has {found} elements; accepted: {count}, as 'nodes_nodeids'")
    unknown = set(modes) - {*MODES[:6], "LEAF"}
    if unknown:
        raise OperatorError(f"attribute 'nodes_modes' has {min(unknown)!r}; accepted: {', '.join(MODES[:6])}, LEAF")
    numbers = {name: number for number, name in enumerate((*MODES, "LEAF"))}
    mode = np.array([numbers[name] for name in modes], np.int64)
    place = {pair: i for i, pair in enumerate(zip(treeids, nodeids, strict=True))}
    if len(place) != count:
        raise OperatorError("attribute 'nodes_nodeids' names a node of a tree twice")
    yes, no = (_children(side, treeids, mode, place) for side in (true, false))
    inner = np.concatenate([side[mode != LEAF] for side in (yes, no)])
    is_root = np.ones(count, np.bool_)
    is_root[inner] = False
    if np.count_nonzero(is_root) != len(set(treeids)):
        raise OperatorError("attributes 'nodes_...': each tree must have one node that no other leads to")
    tracks = np.array(missing, np.bool_) if len(missing) == count else np.zeros(count, np.bool_)
    feature = np.where(mode == LEAF, 0, np.array(features, np.int64))
    _check_features(feature)
    return Trees(mode, feature, values, yes, no, tracks, np.flatnonzero(is_root), {}), place


def _check_features(feature: Array) -> None:
    if np.any(feature < 0):
        raise OperatorError(f"attribute 'nodes_featureids' has {feature.min()}; accepted: 0 or more")


def _children(side: Sequence[int], treeids: Sequence[int], mode: Array, place: dict[tuple[int, int], int]) -> Array:
    found = [0 if m == LEAF else place.get((t, n), -1) for t, n, m in zip(treeids, side, mode, strict=True)]
    if -1 in found:
        index = found.index(-1)
        raise OperatorError(f"node {side[index]} of tree {treeids[index]} is missing, and another leads to it")
    return np.array(found, np.int64)


def entries(leaf: Array, target: Array, weight: Array, count: int) -> Leaves:
    """The entries of the leaves of `count` nodes, from one row for each entry in any order."""
    order = np.argsort(leaf, kind="stable")
    start = np.concatenate([[0], np.cumsum(np.bincount(leaf, minlength=count))])
    return Leaves(start, target[order], weight[order].astype(np.float64))
