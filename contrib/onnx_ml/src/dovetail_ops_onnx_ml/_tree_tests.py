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
