"""NonMaxSuppression: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html."""

import math

import numpy as np

from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import Array

_SIDE = 192
"""Boxes of a block: the pairs among them stay in the cache. With several rows the blocks are smaller."""
_LEAST_SIDE = 8
_BLOCK = 96
"""Boxes of a block of one row."""
_LONG = 192
"""Boxes of a row from which on it is worked on alone."""
_COLUMNS = 3
"""The widths of the widest box in a row of boxes from which on the row may be cut."""


class NonMaxSuppression(Movement):
    """Of each class of each batch the boxes with the highest scores that overlap none taken before by more than a threshold.

    `boxes` [N, boxes, 4] are corners [y1, x1, y2, x2] in any order, or centre and size [x, y, width, height] with
    `center_point_box`; `scores` [N, classes, boxes]. The result is int64 [selected, 3]: batch, class, box.
    """

    since = 10
    inputs = (
        "boxes: float32",
        "scores: float32",
        "max_output_boxes_per_class?: int64",
        "iou_threshold?: float32",
        "score_threshold?: float32",
    )
    outputs = ("selected_indices: int64",)

    center_point_box: int = 0

    def __post_init__(self) -> None:
        if self.center_point_box not in (0, 1):
            raise OperatorError(f"attribute 'center_point_box' is {self.center_point_box}; accepted: 0, 1")

    def infer(self, boxes: TensorType, scores: TensorType, *limits: TensorType | None) -> TensorType:
        """int64 [selected, 3]; how many is known when the data is."""
        fits = boxes.rank == scores.rank == 3 and boxes.dims[2] == 4
        if not fits or (boxes.dims[0], boxes.dims[1]) != (scores.dims[0], scores.dims[2]):
            raise ShapeError(f"input 'boxes' is {boxes}, 'scores' {scores}; accepted: [N, boxes, 4] and [N, classes, boxes]")
        for name, given in zip(("max_output_boxes_per_class", "iou_threshold", "score_threshold"), limits, strict=False):
            if given is not None and given.size != 1:
                raise ShapeError(f"input {name!r} is {given}; accepted: one element")
        return TensorType(DType.INT64, (None, 3))

    def reference(
        self,
        boxes: Array,
        scores: Array,
        most: Array | None = None,
        iou: Array | None = None,
        least: Array | None = None,
    ) -> Array:
        """The triples, by batch, class, and falling score. Equal scores keep the order of the boxes."""
        count = 0 if most is None else int(most.reshape(()))
        overlap = 0.0 if iou is None else float(iou.reshape(()))
        if not 0 <= overlap <= 1:
            raise OperatorError(f"input 'iou_threshold' is {overlap}; accepted: 0 to 1")
        floor = None if least is None else float(least.reshape(()))
        if not scores.size or count <= 0:
            return np.empty((0, 3), np.int64)
        classes = scores.shape[1]
        with np.errstate(all="ignore"):
            if len(scores) == classes == 1:
                places = self._of_one_row(boxes[0], -scores[0, 0], floor, count, overlap)
                return np.stack((np.zeros_like(places), np.zeros_like(places), places), 1)
            rows, places = _by_score(scores.reshape(-1, scores.shape[2]), floor)
            taken = _taken(rows, self._edges(boxes[rows // classes, places]), count, overlap)
        batches, kinds = np.divmod(rows[taken], classes)
        return np.stack((batches, kinds, places[taken]), 1)

    def _of_one_row(self, boxes: Array, keys: Array, least: float | None, most: int, overlap: float) -> Array:
        """The places of the boxes [n, 4] that are selected; `keys` are their scores, negative."""
        places = np.arange(len(keys)) if least is None else np.flatnonzero(keys < -least)
        keys = keys[places]
        leading = _leading(keys, _window(most))
        for part in (leading, slice(None)) if leading.size else (slice(None),):
            order = places[part][np.argsort(keys[part], kind="stable")]
            taken = order[_of_row_apart(self._edges(boxes[order]), most, overlap)]
            if len(taken) == most:
                break
        return np.asarray(taken)

    def _edges(self, boxes: Array) -> Array:
        """Low y, low x, high y, high x and area of each of the boxes [n, 4]: [5, n]. NaN for an area that is not positive."""
        a, b, c, d = boxes.T
        edges = np.empty((5, len(boxes)), boxes.dtype)
        if self.center_point_box:
            edges[:4] = b - d / 2, a - c / 2, b + d / 2, a + c / 2
        else:
            edges[:4] = np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d)
        areas = np.multiply(edges[2] - edges[0], edges[3] - edges[1], out=edges[4])
        areas[~(areas > 0)] = np.nan  # such a box hides no other, and none hides it
        return edges


def _by_score(scores: Array, least: float | None) -> tuple[Array, Array]:
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


def _window(most: int) -> int:
    """How many of the boxes with the highest scores are looked at together."""
    return max(4 * _SIDE, 2 * most)


def _leading(keys: Array, count: int) -> Array:
    """The places of so many of the lowest keys, and of those that equal the last of them; empty where there are few others."""
    if len(keys) <= 2 * count:
        return np.empty(0, np.int64)
    return np.flatnonzero(keys <= np.partition(keys, count)[count])


def _of_row_apart(edges: Array, most: int, overlap: float) -> Array:
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
    taken[order] = _taken(parts[order], edges[:, order], most, overlap)
    return np.asarray(taken & (np.cumsum(taken) <= most))


def _taken(rows: Array, edges: Array, most: int, overlap: float) -> Array:
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


def _of_row(edges: Array, most: int, overlap: float) -> Array:
    """As `_taken`, for one row. Boxes that are not reached before `most` are selected are not looked at."""
    taken, found = np.zeros(edges.shape[1], bool), 0
    chosen = edges[:, :0]
    for start in range(0, edges.shape[1], window := _window(most)):
        near = edges[:, start : start + window]
        waiting = np.flatnonzero(_far(chosen, near, overlap)) if start else np.arange(near.shape[1])
        while waiting.size:
            heads, later = waiting[:_BLOCK], waiting[_BLOCK:]
            first = heads[_first(near[:, heads], overlap)[: most - found]]
            taken[first + start] = True
            found += len(first)
            if found == most:
                return taken
            if not later.size:
                break
            waiting = later[_far(near[:, first], near[:, later], overlap)]
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


def _far(chosen: Array, others: Array, overlap: float) -> Array:
    """Which of the other boxes [5, n] overlap none of the chosen ones [5, m]."""
    step = max(_SIDE * _SIDE // max(chosen.shape[1], 1), 1)
    if others.shape[1] <= step:
        return np.logical_not(_overlaps(chosen[:, :, None], others[:, None], overlap).any(0))
    far = np.empty(others.shape[1], bool)
    for start in range(0, len(far), step):
        part = slice(start, start + step)
        far[part] = ~_overlaps(chosen[:, :, None], others[:, None, part], overlap).any(0)
    return far


def _together(rows: Array, edges: Array, most: int, overlap: float) -> Array:
    """As `_taken`, for many rows of few boxes.

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
