"""The tests of nodes in one form, so that all are made at once: x <= value."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from dovetail_ops_onnx_ml._base import Array
from dovetail_ops_onnx_ml._trees import MODES, Trees

__all__ = ["Tests", "tests_of"]

_, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(len(MODES))


@dataclass(frozen=True)
class Tests:
    """Nodes that lead to `low` where x[feature] <= `value`, and with NaN where `missing`; else to `high`. `~n` is leaf n.

    No x is at most NaN; nodes with that `value` are not `missing`.
    """

    feature: Array
    value: Array
    low: Array
    high: Array
    missing: Array


def tests_of(trees: Trees, dtype: Any) -> Tests:
    """The nodes of trees, and behind them those that further comparisons need; values are `dtype`, as x is."""
    mode, feature, value, true, false, missing = _single_values(trees)
    value = value.astype(dtype)
    swapped = ((mode == _GT) | (mode == _GTE)) & ~np.isnan(value) | (mode == _NEQ)
    low, high = np.where(swapped, false, true), np.where(swapped, true, false)
    # NaN fails all tests but NEQ, unless it counts as success.
    missing = np.where(mode == _NEQ, False, np.where(swapped, ~missing, missing))
    equal = np.flatnonzero((mode == _EQ) | (mode == _NEQ))
    # x == v: first x <= v, and then not x <= (the number below v).
    found = Tests(
        np.concatenate([feature, feature[equal]]),
        np.concatenate([np.where((mode == _LT) | (mode == _GTE), _below(value), value), _below(value[equal])]),
        np.concatenate([low, high[equal]]),
        np.concatenate([high, low[equal]]),
        np.concatenate([missing, np.zeros(equal.size, np.bool_)]),
    )
    found.low[equal] = mode.size + np.arange(equal.size)
    if equal.size:
        _search_by_halves(found, equal, found.low[equal], trees.roots)
    never = found.missing & np.isnan(found.value)  # becomes always, and NaN fails it
    found.low[never], found.high[never] = found.high[never], found.low[never]
    found.value[never], found.missing[never] = np.inf, False
    return found


def _below(value: Array) -> Array:
    """The numbers v' for which x <= v' says x < v: NaN for that below -inf."""
    return np.where(value == -np.inf, np.asarray(np.nan, value.dtype), np.nextafter(value, np.asarray(-np.inf, value.dtype)))


def _single_values(trees: Trees) -> tuple[Array, ...]:
    """The columns of nodes, with a node for each value that a node looks up, which the next one follows."""
    mode, value, false = trees.mode.copy(), trees.value.copy(), trees.false.copy()
    further = {node: members[1:] for node, members in trees.members.items()}
    counts = [members.size for members in further.values()]
    like = np.repeat(np.array([*further], np.int64), counts)
    following = mode.size + 1 + np.arange(like.size)
    for (node, members), end in zip(trees.members.items(), np.cumsum(counts), strict=True):
        mode[node], value[node] = _EQ, members[0] if members.size else np.nan
        if members.size > 1:
            following[end - 1] = false[node]
            false[node] = mode.size + end - (members.size - 1)
    return (
        np.concatenate([mode, np.full(like.size, _EQ)]),
        np.concatenate([trees.feature, trees.feature[like]]),
        np.concatenate([value, *further.values()]),
        np.concatenate([trees.true, trees.true[like]]),
        np.concatenate([false, following]),
        np.concatenate([trees.missing, trees.missing[like]]),
    )


def _search_by_halves(tests: Tests, node: Array, lower: Array, roots: Array) -> None:
    """Rewrite chains of comparisons, as converters write categories, in place: k values take log2(2 k) + 1 levels, not 2 k.

    Where x[feature] is at most the value of `node[i]`, `lower[i]` follows, which has the number below; x equals the value if it
    is greater than that. A chain consists of nodes that each follow where x differs from the value before, and that nothing
    else leads to. Values that are NaN, nodes that count NaN as equal, and chains that have a value twice stay as they are.
    """
    before, is_last = _links(tests, node, lower, roots)
    head = np.where(before < 0, np.arange(node.size), before)
    for _ in range(node.size.bit_length()):
        head = head[head]
    chosen = (before[head] < 0) & (np.bincount(head, minlength=node.size)[head] > 1)
    order = np.flatnonzero(chosen)
    order = order[np.lexsort((tests.value[node[order]], head[order]))]
    chain, value = head[order], tests.value[node[order]]
    repeated = (chain[1:] == chain[:-1]) & (value[1:] == value[:-1])
    order = order[~np.isin(chain, chain[1:][repeated])]
    if order.size:
        _search_chains(tests, node[order], lower[order], head[order], head[order] == order, is_last[order])


def _links(tests: Tests, node: Array, lower: Array, roots: Array) -> tuple[Array, Array]:
    """The place in `node` of the node before each in its chain, -1 at first ones; and whether it is the last one."""
    count = tests.value.size - lower.size
    edges = np.concatenate([tests.high, tests.low[:count], roots])
    parents = np.bincount(edges[(edges >= 0) & (edges < count)], minlength=count)
    place = np.full(count, -1)
    place[node] = np.arange(node.size)
    to = tests.high[node]
    following = np.where(to < 0, -1, place[np.maximum(to, 0)])
    is_plain = ~tests.missing[node] & ~np.isnan(tests.value[node])
    is_linked = (following >= 0) & is_plain & is_plain[following] & (parents[np.maximum(to, 0)] == 1)
    is_linked &= tests.feature[node] == tests.feature[node[following]]
    before = np.full(node.size, -1)
    before[following[is_linked]] = np.flatnonzero(is_linked)
    return before, ~is_linked


def _search_chains(tests: Tests, node: Array, lower: Array, chain: Array, is_first: Array, is_last: Array) -> None:
    """Rewrite the nodes of chains, sorted by chain and value."""
    _, first, count = np.unique(chain, return_index=True, return_counts=True)
    begin, end = 2 * first, 2 * (first + count)
    # The limits of the intervals, and where x leads that is above the limit before: past the last limit, and between two values,
    # it is none of the values.
    otherwise, value = tests.high[node[is_last]], np.stack([tests.value[lower], tests.value[node]], axis=1).reshape(-1)
    outcome = np.stack([np.repeat(otherwise, count), tests.high[lower]], axis=1).reshape(-1)
    test = np.stack([lower, node], axis=1).reshape(-1)
    middle, entered = (begin + end) // 2, 2 * np.flatnonzero(is_first) + 1
    test[middle], test[entered] = test[entered], test[middle]
    tests.value[test] = value
    of, last = np.arange(begin.size), end
    while begin.size:
        middle, parts = (begin + end) // 2, []
        for column, low, high in ((tests.low, begin, middle), (tests.high, middle + 1, end)):
            leads = np.where(low == last[of], otherwise[of], outcome[np.minimum(low, outcome.size - 1)])
            goes_on = low < high
            column[test[middle]] = np.where(goes_on, test[np.minimum((low + high) // 2, test.size - 1)], leads)
            parts.append((low[goes_on], high[goes_on], of[goes_on]))
        begin, end, of = (np.concatenate(column) for column in zip(*parts, strict=True))
