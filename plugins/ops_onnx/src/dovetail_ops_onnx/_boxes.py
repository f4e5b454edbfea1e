"""Boxes selected for NonMaxSuppression: of rows of boxes, by falling score, those that overlap none taken before.

Boxes are [5, ...]: low y, low x, high y, high x and area, NaN for an area that is not positive.
"""

import math

import numpy as np

from dovetail_ops_onnx._types import Array

__all__ = ["are_few", "by_score", "far", "leading", "of_row_apart", "of_shared", "selected", "window"]

_SIDE = 192
"""Boxes of a block: the pairs among them stay in the cache. With several rows the blocks are smaller."""
_LEAST_SIDE = 8
_BLOCK = 96
"""Boxes of a block of one row."""
_LONG = 192
"""Boxes of a row from which on it is worked on alone."""
_SHARED = 4096
"""The most boxes that rows share whose pairs are kept, as 2 MB of bits."""
_PAIRS = 1 << 15
"""Pairs that are compared in the time that `selected` takes apart from comparing pairs."""
_COLUMNS = 3
"""The widths of the widest box in a row of boxes from which on the row may be cut."""


def by_score(scores: Array, least: float | None) -> tuple[Array, Array]:
    """Row and place of the scores [rows, boxes] above `least`, by row and falling score; NaN is last."""
    if least is None:
        order = np.argsort(-scores, axis=1, kind="stable")
        return np.repeat(np.arange(len(scores)), scores.shape[1]), order.reshape(-1)
    found = np.flatnonzero(scores > least)
    rows = found // scores.shape[1]
    counts = np.bincount(rows, minlength=len(scores))
    filled = np.arange(counts.max()) < counts[:, None]
    places, keys = np.zeros(filled.shape, np.int64), np.full(filled.shape, np.nan, scores.dtype)
    places[filled], keys[filled] = found - rows * scores.shape[1], -scores.reshape(-1)[found]
    return rows, np.take_along_axis(places, np.argsort(keys, axis=1, kind="stable"), 1)[filled]


def window(most: int) -> int:
    """How many of the boxes with the highest scores are looked at together."""
    return max(4 * _SIDE, 2 * most)


def leading(keys: Array, count: int) -> Array:
    """Which are so many of the lowest keys, or equal the last of them; none where there are few others."""
    return np.zeros(len(keys), bool) if len(keys) <= 2 * count else keys <= np.partition(keys, count)[count]


def of_row_apart(edges: Array, most: int, overlap: float) -> Array:
    """As `_of_row`, cut where no box spans a column: exporters shift each class to columns of its own."""
    if edges.shape[1] <= _LONG or _COLUMNS * (edges[3] - edges[1]).max() > edges[3].max() - edges[1].min():
        return _of_row(edges, most, overlap)
    order = np.argsort(edges[1])
    cuts = edges[1, order[1:]] >= np.maximum.accumulate(edges[3, order[:-1]])
    if not cuts.any():
        return _of_row(edges, most, overlap)
    parts = np.zeros(len(order), np.int64)
    parts[order[1:]] = np.cumsum(cuts)
    order = np.argsort(parts, kind="stable")
    taken = np.zeros(len(order), bool)
    taken[order] = selected(parts[order], edges[:, order], most, overlap)
    return np.asarray(taken & (np.cumsum(taken) <= most))


def selected(rows: Array, edges: Array, most: int, overlap: float) -> Array:
    """Which boxes [5, n], sorted by row and falling score, are selected: at most `most` of each row."""
    counts = np.bincount(rows)
    ends, is_long = np.cumsum(counts), counts > _LONG
    taken = np.zeros(len(rows), bool)
    for row in np.flatnonzero(is_long).tolist():
        own = slice(ends[row] - counts[row], ends[row])
        taken[own] = _of_row(edges[:, own], most, overlap)
    if not is_long.all():
        short = np.flatnonzero(~is_long[rows])
        taken[short] = _together(rows[short], edges[:, short], most, overlap)
    return taken


def are_few(rows: Array, boxes: int, most: int) -> bool:
    """Whether rows share so few boxes that it takes less time to compare all pairs of these once, as `of_shared` does."""
    counts = np.bincount(rows)
    pairs = (counts * np.minimum(counts, most)).sum() if len(counts) > 1 else 0
    return 0 < boxes <= _SHARED and bool(boxes * boxes <= pairs + _PAIRS)


def of_shared(rows: Array, places: Array, boxes: Array, most: int, overlap: float) -> Array:
    """As `selected`, for rows that take their boxes [5, n] at `places` of the same few: pairs are compared once for all rows.

    Bits of whole numbers say which boxes one hides.
    """
    hides, bits = [], [1 << place for place in range(boxes.shape[1])]
    for start in range(0, boxes.shape[1], step := max(_SIDE * _SIDE // boxes.shape[1], 1)):
        pairs = _overlaps(boxes[:, start : start + step, None], boxes[:, None], overlap)
        lines = np.packbits(pairs, axis=1, bitorder="little")
        hides += [int.from_bytes(line, "little") for line in lines]
    taken, start = [], 0
    for count in np.bincount(rows).tolist():
        hidden, left = 0, most
        for index, place in enumerate(places[start : start + count].tolist(), start):
            if not hidden & bits[place]:
                taken.append(index)
                hidden |= hides[place]
                left -= 1
                if not left:
                    break
        start += count
    found = np.zeros(len(rows), bool)
    found[taken] = True
    return found


def _of_row(edges: Array, most: int, overlap: float) -> Array:
    """As `selected`, for one row. Boxes that are not reached before `most` are selected are not looked at."""
    taken, found = np.zeros(edges.shape[1], bool), 0
    chosen = edges[:, :0]
    for start in range(0, edges.shape[1], _SIDE):
        near = edges[:, start : start + _SIDE]
        waiting = np.flatnonzero(far(chosen, near, overlap)) if start else np.arange(near.shape[1])
        while waiting.size:
            heads, later = waiting[:_BLOCK], waiting[_BLOCK:]
            first = heads[_first(near[:, heads], overlap)[: most - found]]
            taken[first + start] = True
            found += len(first)
            if found == most:
                return taken
            if not later.size:
                break
            waiting = later[far(near[:, first], near[:, later], overlap)]
        chosen = edges[:, taken]
    return taken


def _first(edges: Array, overlap: float) -> list[int]:
    """Which of the boxes [5, n] overlap no earlier one that is taken. Bits of whole numbers: they need few calls of NumPy."""
    hides = np.packbits(_overlaps(edges[:, :, None], edges[:, None], overlap), axis=1, bitorder="little")
    width, content = hides.shape[1], hides.tobytes()
    left, found = (1 << edges.shape[1]) - 1, []
    while left:
        one = left & -left
        found.append(place := one.bit_length() - 1)
        left &= ~(one | int.from_bytes(content[place * width : (place + 1) * width], "little"))
    return found


def far(chosen: Array, others: Array, overlap: float) -> Array:
    """Which of the other boxes [5, n] overlap none of the chosen ones [5, m]."""
    step = max(_SIDE * _SIDE // max(chosen.shape[1], 1), 1)
    if others.shape[1] <= step:
        return np.logical_not(_overlaps(chosen[:, :, None], others[:, None], overlap).any(0))
    found = np.empty(others.shape[1], bool)
    for start in range(0, len(found), step):
        part = slice(start, start + step)
        found[part] = ~_overlaps(chosen[:, :, None], others[:, None, part], overlap).any(0)
    return found


def _together(rows: Array, edges: Array, most: int, overlap: float) -> Array:
    """As `selected`, for many rows of few boxes.

    In rounds. Each decides about the first boxes of every row among themselves, and drops the later ones that overlap them.
    """
    taken = np.zeros(len(rows), bool)
    left = np.full(rows.max(initial=-1) + 1, most)
    waiting = np.arange(len(rows))
    while waiting.size:
        counts = np.bincount(rows[waiting])
        active = np.flatnonzero(counts)
        first, lengths = (np.cumsum(counts) - counts)[active], counts[active]
        places = np.arange(min(int(lengths.max()), max(_SIDE // math.isqrt(len(active)), _LEAST_SIDE)))
        heads = waiting[np.minimum(first[:, None] + places, len(waiting) - 1)]
        chosen = _greedy(edges[:, heads], places < lengths[:, None], overlap)
        chosen &= np.cumsum(chosen, 1) <= left[active, None]
        taken[heads[chosen]] = True
        left[active] -= chosen.sum(1)
        owner = np.repeat(np.arange(len(active)), lengths)
        start = np.where(left[active] > 0, first + len(places), len(waiting))
        later = np.arange(len(waiting)) >= start[owner]
        waiting, owner = waiting[later], owner[later]
        if waiting.size:
            waiting = waiting[_apart(edges[:, heads], chosen, edges[:, waiting], owner, overlap)]
    return taken


def _greedy(edges: Array, there: Array, overlap: float) -> Array:
    """Which of the boxes [5, rows, n] that are there overlap no earlier one of their row that is taken."""
    places = np.arange(there.shape[1])
    hides = _overlaps(edges[:, :, :, None], edges[:, :, None], overlap) & (places[:, None] < places)
    chosen = there
    while True:  # n times at most: each settles one more box of each row at least, two or three in practice
        found: Array = there & ~(chosen[:, None] @ hides)[:, 0]
        if np.array_equal(found, chosen):
            return found
        chosen = found


def _apart(heads: Array, chosen: Array, others: Array, owner: Array, overlap: float) -> Array:
    """Which of the other boxes [5, n] overlap none of the chosen heads [5, rows, m] of the row that owns them."""
    counts = chosen.sum(1)
    order = np.argsort(~chosen, axis=1, kind="stable")[:, : counts.max()]
    near = np.take_along_axis(heads, order[None], 2)
    near[:, np.arange(order.shape[1]) >= counts[:, None]] = np.nan  # overlaps nothing
    near = near.swapaxes(1, 2)[:, :, owner if len(chosen) > 1 else slice(1)]
    apart: Array = np.empty(len(owner), bool)
    step = max(_SIDE * _SIDE // max(order.shape[1], 1), 1)
    for start in range(0, len(owner), step):
        part = slice(start, start + step)
        apart[part] = ~_overlaps(near[:, :, part] if len(chosen) > 1 else near, others[:, None, part], overlap).any(0)
    return apart


def _overlaps(a: Array, b: Array, overlap: float) -> Array:
    """Whether boxes [5, ...] share more than a part `overlap` of their union. In place: fresh memory costs more than the sums.

    Boxes side by side share an area below 0: only widths need be at least 0.
    """
    shared, scratch = np.minimum(a[2], b[2]), np.maximum(a[0], b[0])
    shared -= scratch
    width = np.minimum(a[3], b[3])
    width -= np.maximum(a[1], b[1], out=scratch)
    np.maximum(width, 0, out=width)
    shared *= width
    joined = np.add(a[4], b[4], width)
    joined -= shared
    joined *= overlap
    return np.asarray(shared > joined)
