"""Shared by ScatterElements and ScatterND: writing updates to places, with a reduction where places meet."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from dovetail.op import DType, HostConfig, HostKernel, OperatorError
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._strings import in_parts
from dovetail_ops_onnx._types import NUMERIC, Array, Types

__all__ = ["InData", "check_reduction", "check_reduction_type", "order_of", "scatter", "write_rows"]

_UFUNCS = {"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum}
REDUCTIONS = ("none", *_UFUNCS)

_PART = 1 << 14
"""Elements that are joined at once: their indices stay in the cache."""

_ROUND = 1 << 8
"""Elements that ufunc.at joins in the time that a round takes."""

_WIDE, _SORTED = 16, 1 << 14
"""Elements of a row, and of all updates, from which on sorting them by rounds pays."""


_LARGEST = np.iinfo(np.intc).max
"""Bytes of an element of NumPy at most."""


class InData(HostKernel):
    """Writes the updates into the data, where that may be overwritten, else into a copy of it. Without a reduction."""

    def configurations(self, op: Any, inputs: Types, outputs: Types) -> Sequence[HostConfig]:
        is_text = any(t is not None and t.dtype is DType.STRING for t in inputs)
        return () if is_text or op.reduction != "none" else (HostConfig.uniform(inputs, outputs, in_place=0),)

    def execute(self, op: Any, config: HostConfig, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        _, indices, updates = inputs
        op.write(outputs[0], indices, updates)


def check_reduction(reduction: str) -> None:
    """Raise `OperatorError` for a reduction that ONNX does not know."""
    if reduction not in REDUCTIONS:
        raise OperatorError(f"attribute 'reduction' is {reduction!r}; accepted: {', '.join(REDUCTIONS)}")


def check_reduction_type(reduction: str, dtype: DType) -> None:
    """Raise `OperatorError` for data that cannot be reduced: only numbers can."""
    if reduction != "none" and dtype not in NUMERIC:
        raise OperatorError(f"reduction {reduction!r} of {dtype}; accepted: integers and floating-point types")


def scatter(data: Array, rows: Array, updates: Array, reduction: str) -> Array:
    """A copy of `data` [m, k] with `updates` at `rows` from 0 on, [n]; updates have n * k elements in any shape.

    Without a reduction the last update of a row counts (ONNX leaves that open). Sums and products of narrow floats are
    computed in float32, update by update in order, and rounded once.
    """
    if reduction == "none" or not updates.size:
        result = np.array(data, order="C")
        write_rows(result, rows, updates)
        return result
    # ufunc.at knows no byte order or narrow float but its own, and a contiguous copy is written to in any case.
    result = np.array(wide(data), order="C")
    with np.errstate(all="ignore"):
        _join(_UFUNCS[reduction], result, rows, wide(updates).reshape(rows.size, -1))
        return result.astype(data.dtype, copy=False)


def write_rows(dst: Array, rows: Array, updates: Array) -> None:
    """dst[rows] = updates, of [m, k] in C order; the last update of a row counts."""
    given, size = updates.reshape(rows.size, dst.shape[1]), dst.shape[1] * dst.itemsize
    if dst.dtype == object:
        in_parts(lambda part, where: dst.__setitem__(where, part), given, rows)
    elif dst.shape[1] == 1:
        dst.reshape(-1)[rows] = given.reshape(-1)
    elif 0 < size <= _LARGEST and given.dtype == dst.dtype:
        # A row as one element takes 1 to 10 ns, as elements of its own 20 and more.
        row = np.dtype((np.void, size))
        dst.view(row).reshape(-1)[rows] = np.ascontiguousarray(given).view(row).reshape(-1)
    else:
        dst[rows] = given


def _join(ufunc: np.ufunc, dst: Array, rows: Array, updates: Array) -> None:
    """Join `updates` [n, k] with rows of dst [m, k], in order."""
    size = dst.shape[1]
    if size > 1 and _are_distinct(rows, len(dst)):
        write_rows(dst, rows, ufunc(dst.take(rows, 0), updates))
        return
    if size >= _WIDE and updates.size >= _SORTED:
        counts = np.bincount(rows)
        if counts.max() * _ROUND <= updates.size:
            rows, updates = _join_in_rounds(ufunc, dst, rows, updates, counts)
    flat, columns, step = dst.reshape(-1), np.arange(size), max(1, _PART // max(1, size))
    for start in range(0, len(rows), step):
        part = slice(start, start + step)
        # ufunc.at is fast for vectors only.
        ufunc.at(flat, (rows[part, None] * size + columns).reshape(-1), updates[part].reshape(-1))


def _join_in_rounds(ufunc: np.ufunc, dst: Array, rows: Array, updates: Array, counts: Array) -> tuple[Array, Array]:
    """Join the first updates of all rows at once, then the second ones, and so on; the rows and updates that are left.

    `counts` has the number of updates of each row. Rounds of less than `_ROUND` elements are left: `ufunc.at` takes less time.
    """
    used = order_of(counts.max() - counts)[: np.count_nonzero(counts)]  # most updates first: a round takes rows from the front
    counts = counts[used]
    place = np.empty(len(dst), np.int64)
    place[used] = np.arange(len(used))
    order = order_of(place[rows])
    turns = np.arange(len(rows)) - np.repeat(np.cumsum(counts) - counts, counts)
    order = order[order_of(turns)]
    sizes = np.searchsorted(-counts, -np.arange(counts[0]))
    joined, start = dst.take(used, 0), 0
    taken = np.empty(joined.shape, updates.dtype)
    for size in sizes[sizes * dst.shape[1] >= _ROUND].tolist():
        part, added = joined[:size], taken[:size]
        updates.take(order[start : start + size], 0, added, "clip")  # "raise" would copy the result once more
        ufunc(part, added, out=part)
        start += size
    write_rows(dst, used, joined)
    return rows[order[start:]], updates.take(order[start:], 0)


def order_of(keys: Array) -> Array:
    """The stable order of integers from 0 on. By 16 bits at a time, a tenth of the time of a sort of wider integers."""
    order: Array = np.argsort(keys.astype(np.uint16), kind="stable")
    return order if keys.max(initial=0) < 1 << 16 else order[order_of(keys[order] >> 16)]


def _are_distinct(rows: Array, count: int) -> bool:
    """Whether rows of `count` are all different."""
    order, last = np.arange(len(rows)), np.empty(count, np.intp)
    last[rows] = order
    return bool((last[rows] == order).all())
