"""Trees as their definition gives them: an element of each array for each node that tests, and entries for the leaves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.op import OperatorError
from dovetail_ops_onnx_ml._base import Array

__all__ = ["MODES", "Leaves", "NodeTable", "Trees", "integers"]

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ", "BRANCH_MEMBER")
"""By their numbers in TreeEnsemble."""
_LEAF = len(MODES)
_NUMBERS = {**{name: number for number, name in enumerate(MODES[:6])}, "LEAF": _LEAF}


@dataclass(frozen=True)
class Trees:
    """`mode`, `feature`, `value`, `true`, `false` and `missing` (does NaN go to `true`?) have an element for each node.

    `true`, `false` and `roots`, which has one for each tree, are numbers of nodes, or `~n` for leaf n. `members` are the values
    of nodes of mode BRANCH_MEMBER.
    """

    mode: Array
    feature: Array
    value: Array
    true: Array
    false: Array
    missing: Array
    roots: Array
    members: dict[int, Array]


@dataclass(frozen=True)
class Leaves:
    """The weights of `count` leaves, as entries in any order: `leaf` adds `weight` to `target`."""

    count: int
    leaf: Array
    target: Array
    weight: Array

    @property
    def for_one_target(self) -> "Leaves":
        """The first entry of each leaf, for target 0: ONNX Runtime reads no others where there is one target."""
        _, first = np.unique(self.leaf, return_index=True)
        return Leaves(self.count, self.leaf[first], np.zeros_like(first), self.weight[first])


class NodeTable:
    """The nodes of the operators before TreeEnsemble, found by the numbers of tree and node. Raises `OperatorError`."""

    def __init__(self, treeids: Sequence[int], nodeids: Sequence[int], modes: Sequence[str]) -> None:
        count = len(nodeids)
        _check_counts({"treeids": len(treeids), "modes": len(modes)}, count)
        unknown = set(modes) - _NUMBERS.keys()
        if unknown:
            raise OperatorError(f"attribute 'nodes_modes' has {min(unknown)!r}; accepted: {', '.join(MODES[:6])}, LEAF")
        if not count:
            raise OperatorError("attribute 'nodes_nodeids' is empty; accepted: at least one")
        self._trees, self._tree = np.unique(integers(treeids), return_inverse=True)
        self._nodes = integers(nodeids)
        self._least, self._greatest = int(self._nodes.min()), int(self._nodes.max())
        self._span = self._greatest - self._least + 1
        if self._span * len(self._trees) >= 2**62:
            given = f"attribute 'nodes_nodeids' goes from {self._least} to {self._greatest}"
            raise OperatorError(f"{given}; accepted: a smaller range")
        self._mode = integers(map(_NUMBERS.__getitem__, modes))
        is_leaf = self._mode == _LEAF
        self.leaves = int(np.count_nonzero(is_leaf))
        self._places = np.where(is_leaf, -np.cumsum(is_leaf), np.cumsum(~is_leaf) - 1)
        keys = self._keys(self._tree, self._nodes)
        self._order = np.argsort(keys, kind="stable")
        self._sorted = keys[self._order]
        if np.any(self._sorted[1:] == self._sorted[:-1]):
            raise OperatorError("attribute 'nodes_nodeids' names a node of a tree twice")

    def leaf(self, treeids: Sequence[int], nodeids: Sequence[int], name: str) -> Array:
        """The numbers of leaves; those of nodes that test are -1. Raises `OperatorError` for nodes that do not exist."""
        wanted, nodes = integers(treeids), integers(nodeids)
        tree = np.minimum(np.searchsorted(self._trees, wanted), self._trees.size - 1)
        place, exists = self._found(tree, nodes)
        exists &= self._trees[tree] == wanted
        if not exists.all():
            missing = nodes[int(np.argmin(exists))]
            raise OperatorError(f"attribute '{name}' names node {missing}, which the tree does not have")
        return np.maximum(~place, -1)

    def trees(
        self, features: Sequence[int], values: Array, true: Sequence[int], false: Sequence[int], missing: Sequence[int]
    ) -> Trees:
        """Trees from the attributes `nodes_...`. Raises `OperatorError`."""
        count = self._nodes.size
        counts = {"featureids": len(features), "values": len(values), "truenodeids": len(true), "falsenodeids": len(false)}
        _check_counts(counts, count)
        nodes = np.flatnonzero(self._mode != _LEAF)
        yes, no = (self._children(nodes, integers(side)[nodes]) for side in (true, false))
        leads = np.zeros(count, np.bool_)
        leads[np.concatenate([yes, no]) + self.leaves] = True
        roots = self._places[~leads[self._places + self.leaves]]
        if roots.size != self._trees.size:
            raise OperatorError("attributes 'nodes_...': each tree must have one node that no other leads to")
        feature = integers(features)[nodes]
        if np.any(feature < 0):
            raise OperatorError(f"attribute 'nodes_featureids' has {feature.min()}; accepted: 0 or more")
        tracks = np.array(missing, np.bool_)[nodes] if len(missing) == count else np.zeros(nodes.size, np.bool_)
        return Trees(self._mode[nodes], feature, values[nodes], yes, no, tracks, roots, {})

    def _children(self, nodes: Array, wanted: Array) -> Array:
        """Where `nodes`, given by their places in the attributes, lead to."""
        tree = self._tree[nodes]
        place, exists = self._found(tree, wanted)
        if not exists.all():
            index = int(np.argmin(exists))
            raise OperatorError(f"node {wanted[index]} of tree {self._trees[tree[index]]} is missing, and another leads to it")
        return place

    def _found(self, tree: Array, nodeids: Array) -> tuple[Array, Array]:
        """The numbers of nodes, or `~n` of leaves, and whether they exist."""
        inside = (nodeids >= self._least) & (nodeids <= self._greatest)
        keys = self._keys(tree, np.where(inside, nodeids, self._least))
        at = np.minimum(np.searchsorted(self._sorted, keys), self._sorted.size - 1)
        return self._places[self._order[at]], inside & (self._sorted[at] == keys)

    def _keys(self, tree: Array, nodeids: Array) -> Array:
        found: Array = tree * self._span + (nodeids - self._least)
        return found


def integers(values: Iterable[int]) -> Array:
    """As int64, in half the time of `np.array`."""
    return np.fromiter(values, np.int64)


def _check_counts(counts: dict[str, int], count: int) -> None:
    for name, found in counts.items():
        if found != count:
            raise OperatorError(f"attribute 'nodes_{name}' has {found} elements; accepted: {count}, as 'nodes_nodeids'")
