"""NonMaxSuppression: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html."""

import math

import numpy as np

from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import Array

_SIDE = 192
"""Boxes of a block: the pairs among them stay in the cache. With several rows the blocks are smaller."""
_LEAST_SIDE = 8
_LONG = 192
"""Boxes of a row from which on it is worked on alone."""


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
            rows, places = _by_score(scores.reshape(-1, scores.shape[2]), floor)
            edges = self._edges(boxes)[:, rows // classes, places]
            taken = (_taken if rows[-1:].any() or len(rows) <= _SIDE else _taken_apart)(rows, edges, count, overlap)
        batches, kinds = np.divmod(rows[taken], classes)
        return np.stack((batches, kinds, places[taken]), 1)

    def _edges(self, boxes: Array) -> Array:
        """Low y, low x, high y, high x and area of each box: [5, N, boxes]"""
        a, b, c, d = np.moveaxis(boxes, 2, 0)
        if self.center_point_box:
            edges = (b - d / 2, a - c / 2, b + d / 2, a + c / 2)
        else:
            edges = (np.minimum(a, c), np.minimum(b, d), np.maximum(a, c), np.maximum(b, d))
        return np.stack((*edges, (edges[2] - edges[0]) * (edges[3] - edges[1])))


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


def _taken_apart(rows: Array, edges: Array, most: int, overlap: float) -> Array:
    """As `_taken` for one row, cut where no box spans a column: exporters shift each class to columns of its own."""
    if (edges[4] < 0).any():  # sizes below 0: such a box may hide boxes that it does not meet
        return _taken(rows, edges, most, overlap)
    order = np.argsort(edges[1])
    cuts = edges[1, order[1:]] >= np.maximum.accumulate(edges[3, order[:-1]])
    parts = np.zeros_like(rows)
    parts[order[1:]] = np.cumsum(cuts)
    order = np.argsort(parts, kind="stable")
    taken = np.zeros(len(rows), bool)
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
    for start in range(0, edges.shape[1], window := max(4 * _SIDE, 2 * most)):
        near = edges[:, start : start + window]
        waiting = np.flatnonzero(_far(chosen, near, overlap))
        while waiting.size:
            heads, later = waiting[:_SIDE], waiting[_SIDE:]
            first = heads[_greedy(near[:, None, heads], np.ones((1, len(heads)), bool), overlap)[0]][: most - found]
            taken[first + start] = True
            found += len(first)
            if found == most:
                return taken
            waiting = later[_far(near[:, first], near[:, later], overlap)]
        chosen = edges[:, taken]
    return taken


def _far(chosen: Array, others: Array, overlap: float) -> Array:
    """Which of the other boxes [5, n] overlap none of the chosen ones [5, m]."""
    far = np.ones(others.shape[1], bool)
    step = max(_SIDE * _SIDE // max(chosen.shape[1], 1), 1)
    for start in range(0, len(far) if chosen.shape[1] else 0, step):
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
    """Whether boxes [5, ...] share more than a part `overlap` of their union. In place: fresh memory costs more than the sums."""
    shared, scratch = np.minimum(a[2], b[2]), np.maximum(a[0], b[0])
    shared -= scratch
    shared.clip(0, np.inf, shared)
    width = np.minimum(a[3], b[3])
    width -= np.maximum(a[1], b[1], out=scratch)
    width.clip(0, np.inf, width)
    shared *= width
    joined = np.add(a[4], b[4], width)
    joined -= shared
    joined *= overlap
    return np.asarray(shared > joined)
