"""Which leaves samples reach: many samples walk many trees at once, level by level."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import OperatorError
from dovetail_ops_onnx_ml._base import Array
from dovetail_ops_onnx_ml._tree_tests import Tests, tests_of
from dovetail_ops_onnx_ml._trees import Trees

__all__ = ["Slots", "slots_of"]

_TOP = 3
"""Levels whose nodes are all tested for every sample: their features are columns, which nothing has to be looked up for."""
_TOP_ROWS = 48
"""Samples from which on that is faster."""
_TESTS = 1250
"""Tests of all nodes that take as long as a level of a walk, for one sample."""
_BY_HAND, _WIDE, _MANY = 24, 512, 1 << 16
"""Levels of all trees that Python walks for one sample, 0.1 us each, where arrays take 8 us and 0.5 a level; the features of such
a sample, and the slots of such trees, at most."""
_FEW = 1000
"""Walks from which on those that have ended are left out more often."""
_EVERY = 4
"""Levels after which they are, which takes about as long as one level."""


@dataclass(frozen=True)
class Slots:
    """Nodes as a walk needs them: the roots of the trees, then side by side the two nodes that each node leads to.

    From slot s a walk goes to `child[s]`, or to the slot behind that where the feature `feature[s]` is at most `value[s]`, or NaN
    and `missing[s]`. A leaf leads to itself; `leaf` is its number, -1 elsewhere. No leaf is in the first `complete` of `depth`
    levels.
    """

    leaf: Array
    feature: Array
    value: Array
    child: Array
    missing: Array
    trees: int
    depth: int
    complete: int
    tests: Tests

    def table(self, x: Array) -> "_Table":
        """Samples [samples, features] for `_Table.walk`. Raises `OperatorError` for too few features."""
        if x.shape[1] < self._features:
            raise OperatorError(f"input 'X' has {x.shape[1]} features; the trees read {self._features}")
        if not (self._tracks and np.isnan(x).any()):
            return _Table(self, np.ascontiguousarray(x), self.feature, self._top[0], self.tests.feature)
        # Beside each feature once more, less than every value where it is missing.
        wide = np.stack([x, np.where(np.isnan(x), -np.inf, x)], axis=2)
        return _Table(self, wide.reshape(x.shape[0], -1), *self._wide)

    @cached_property
    def jumps(self) -> tuple[Array, ...]:
        """Where tests lead to if they hold, and if not; where leaves and trees begin, and the slots of leaves."""
        own = np.flatnonzero(self.leaf >= 0)
        slots = np.zeros(int(self.leaf.max()) + 1, np.int64)
        slots[self.leaf[own]] = own
        low, high = self.tests.low.astype(np.int32), self.tests.high.astype(np.int32)
        roots = np.where(self.leaf < 0, (self.child - self.trees) // 2, ~self.leaf)[: self.trees]
        return low, high, np.arange(-slots.size, 0, dtype=np.int32), roots, slots

    @cached_property
    def steps(self) -> list[tuple[int, float, int]]:
        """Of each slot the feature, value and child as Python's numbers, which are exact."""
        return list(zip(self.feature.tolist(), self.value.tolist(), self.child.tolist(), strict=True))

    @cached_property
    def wide_steps(self) -> list[tuple[int, float, int]]:
        """As `steps`, for samples that have each feature twice."""
        return list(zip(self._wide[0].tolist(), self.value.tolist(), self.child.tolist(), strict=True))

    @cached_property
    def _features(self) -> int:
        return int(self.feature.max(initial=-1)) + 1

    @cached_property
    def _tracks(self) -> bool:
        return bool(self.missing.any())

    @cached_property
    def _wide(self) -> tuple[Array, Array, Array]:
        column = self.feature * 2 + self.missing
        return column, column[self._top_slots[:, : 2**_TOP - 1]], self.tests.feature * 2 + self.tests.missing

    @cached_property
    def _top_slots(self) -> Array:
        """The slots [trees, 15] of the levels up to that behind the top, in the order of a complete tree."""
        levels = [np.arange(self.trees)[:, None]]
        for _ in range(_TOP):
            child = self.child[levels[-1]]
            # Behind a leaf nothing is ever reached.
            levels.append(np.minimum(np.stack([child, child + 1], axis=2).reshape(self.trees, -1), self.child.size - 1))
        return np.concatenate(levels, axis=1)

    @cached_property
    def _top(self) -> tuple[Array, Array, Array]:
        """Features and values [trees, 7] of the top, and the slots [trees * 8] behind it."""
        slots = self._top_slots
        inner = slots[:, : 2**_TOP - 1]
        return self.feature[inner], self.value[inner][:, :, None], slots[:, 2**_TOP - 1 :].reshape(-1)


class _Table:
    """Samples `x`, and the column in it for each slot, each slot of the top, and each of the tests."""

    def __init__(self, slots: Slots, x: Array, column: Array, top: Array, tested: Array) -> None:
        self.slots, self.x, self.column, self.top, self.tested = slots, x, column, top, tested

    def walk(self, first: int, last: int, tree: int, end: int) -> Array:
        """The leaf's slot [trees, samples] that each sample of some reaches in each tree of some."""
        slots, rows, trees, width = self.slots, last - first, end - tree, self.x.shape[1]
        if self.is_small:
            return self._by_hand(tree, end)
        if self.x.shape[0] == 1 and self.tested.size < _TESTS * slots.depth:
            return self._of_one(tree, end)
        if rows < _TOP_ROWS or slots.depth < _TOP:
            at, level = np.repeat(np.arange(tree, end), rows), 0
        else:
            at, level = self._behind_top(first, last, tree, end).reshape(-1), _TOP
        offset = None if self.x.shape[0] == 1 else np.tile(np.arange(first * width, last * width, width), trees)
        step = _Step(self, at.size)
        for _ in range(level, slots.complete):
            step(at, offset)
        self._to_end(step, at, offset, slots.depth - max(level, slots.complete))
        return at.reshape(trees, rows)

    @property
    def is_small(self) -> bool:
        """Whether there is so little to do that Python walks by itself."""
        slots, x = self.slots, self.x
        return x.shape[0] == 1 and slots.trees * slots.depth <= _BY_HAND and x.size <= _WIDE and slots.child.size <= _MANY

    def _by_hand(self, tree: int, end: int) -> Array:
        """As `walk` for a single sample and few levels."""
        slots, row = self.slots, self.x[0].tolist()
        steps = slots.steps if self.column is slots.feature else slots.wide_steps
        reached = []
        for at in range(tree, end):
            column, value, child = steps[at]
            while child != at:
                at = child + (row[column] <= value)
                column, value, child = steps[at]
            reached.append(at)
        return np.array(reached)[:, None]

    def _of_one(self, tree: int, end: int) -> Array:
        """As `walk` for a single sample: makes all tests first, so that a level is one call."""
        tests, (low, high, own, roots, slots) = self.slots.tests, self.slots.jumps
        holds = self.x.reshape(-1).take(self.tested) <= tests.value
        to = np.concatenate([np.where(holds, low, high), own])  # leaves, which are negative, at the end
        at = roots[tree:end]
        for _ in range(self.slots.depth):
            at = to.take(at)
        return slots.take(~at)[:, None]

    def _to_end(self, step: "_Step", reached: Array, offset: Array | None, levels: int) -> None:
        """Walk up to the leaves; what has ended is left out from time to time."""
        every = _EVERY if reached.size > _FEW else 4 * _EVERY
        at, going = reached, None
        while levels > 0:
            if levels >= every:
                inner = np.flatnonzero(self.slots.child.take(at) != at)
                if going is not None:
                    reached[going] = at
                going = inner if going is None else going[inner]
                at, offset = at[inner], None if offset is None else offset[inner]
            for _ in range(min(every, levels)):
                step(at, offset)
            levels = levels - every if at.size else 0
        if going is not None:
            reached[going] = at

    def _behind_top(self, first: int, last: int, tree: int, end: int) -> Array:
        """The slots [trees, samples] behind the top."""
        columns = np.ascontiguousarray(self.x[first:last].T)
        _, value, behind = self.slots._top
        low = columns.take(self.top[tree:end], axis=0) <= value[tree:end]
        key = np.bitwise_or.reduce(low.view(np.uint8) * _BITS, axis=1)
        at = _PLACES.take(key)
        at += np.arange(tree, end)[:, None] * 2**_TOP
        found: Array = behind.take(at)
        return found


class _Step:
    """One level down for up to `size` walks, without new arrays: the system takes longer to clear them than this takes."""

    def __init__(self, table: _Table, size: int) -> None:
        self._x, self._column, self._slots = table.x.reshape(-1), table.column, table.slots
        self._places = np.empty(size, np.int64)
        self._given, self._limits = np.empty(size, table.x.dtype), np.empty(size, self._slots.value.dtype)
        self._low = np.empty(size, np.bool_)

    def __call__(self, at: Array, offset: Array | None) -> None:
        """Take slots `at` one level down, in place; the samples begin at `offset` in x."""
        size = at.size
        places, given, limits, low = self._places[:size], self._given[:size], self._limits[:size], self._low[:size]
        self._column.take(at, out=places, mode="clip")
        if offset is not None:
            places += offset
        self._x.take(places, out=given, mode="clip")
        self._slots.value.take(at, out=limits, mode="clip")
        np.less_equal(given, limits, out=low)
        self._slots.child.take(at, out=places, mode="clip")
        np.add(places, low, out=at)


def slots_of(trees: Trees, dtype: Any) -> Slots:
    """For samples of float32 or float64. Raises `OperatorError` for trees that do not end."""
    tests = tests_of(trees, dtype)
    node = np.concatenate([trees.roots, np.stack([tests.high, tests.low], axis=1).reshape(-1)])
    child = np.where(node < 0, np.arange(node.size), trees.roots.size + 2 * node)
    depth, complete = _levels(child, trees.roots.size)
    feature, value, missing = (_of_slots(column, node) for column in (tests.feature, tests.value, tests.missing))
    value[node < 0] = np.nan
    return Slots(np.maximum(~node, -1), feature, value, child, missing, trees.roots.size, depth, complete, tests)


def _of_slots(column: Array, node: Array) -> Array:
    """The elements of nodes; 0 for leaves."""
    return np.append(column, column.dtype.type(0))[np.where(node < 0, column.size, node)]


def _levels(child: Array, trees: int) -> tuple[int, int]:
    """How many levels there are, and how many without leaves."""
    level, depth, complete = np.arange(trees), 0, None
    while True:
        inner = level[child[level] != level]
        if complete is None and inner.size < level.size:
            complete = depth
        if not inner.size:
            return depth, complete or 0
        if depth > child.size:
            raise OperatorError("a tree does not end: its nodes lead back to themselves")
        below = child[inner]
        level = np.concatenate([below, below + 1])
        if level.size > child.size:  # where several nodes lead to one
            level = np.unique(level)
        depth += 1


def _places() -> Array:
    """For the outcomes of the tests of a complete tree of three levels, as bits, the place of the leaf."""
    keys = np.arange(2 ** (2**_TOP - 1))
    at = np.zeros_like(keys)
    for _ in range(_TOP):
        at = 2 * at + 1 + (keys >> at & 1)
    found: Array = at - (2**_TOP - 1)
    return found


_PLACES = _places()
_BITS = (1 << np.arange(2**_TOP - 1)).astype(np.uint8)[:, None]
