"""Boxes with an angle: suppression of those that overlap, and features of regions."""

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["NMSRotated", "ROIAlignRotated"]

Array = NDArray[Any]

_UNIT = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]])
"""The corners of a box of the size 1, in order."""


class NMSRotated(Operator):
    """Of each class of each picture the boxes with the highest scores that overlap none taken before by more than a threshold.

    `boxes` [N, M, 5] are centre, width, height and angle in radians, clockwise or not; `scores` [N, C, M]. The results are rows
    of picture, class and box [n, 3], of picture, class and score [n, 3], and n. They are sorted by score, or class by class.
    """

    domain: ClassVar[str] = "openvino"
    inputs = (
        "boxes: T",
        "scores: T",
        "max_output_boxes_per_class: int64",
        "iou_threshold: T",
        "score_threshold: T",
    )
    outputs = ("selected_indices: int64", "selected_scores: T", "valid_outputs: int64")
    types = {"T": frozenset({DType.FLOAT32})}

    sort_result_descending: bool = True
    clockwise: bool = True

    def infer(self, boxes: TensorType, scores: TensorType, *limits: TensorType) -> tuple[TensorType, ...]:
        """[n, 3], [n, 3] and [1]; n is known when the data is."""
        fits = boxes.rank == scores.rank == 3 and boxes.dims[2] == 5
        if not fits or (boxes.dims[0], boxes.dims[1]) != (scores.dims[0], scores.dims[2]):
            raise ShapeError(f"input 'boxes' is {boxes}, 'scores' {scores}; accepted: [N, M, 5] and [N, C, M]")
        if any(limit.size != 1 for limit in limits):
            raise ShapeError(f"the limits are {', '.join(map(str, limits))}; accepted: one element each")
        return TensorType(DType.INT64, (None, 3)), TensorType(DType.FLOAT32, (None, 3)), TensorType(DType.INT64, (1,))

    def reference(self, boxes: Array, scores: Array, most: Array, overlap: Array, least: Array) -> tuple[Array, ...]:
        """Overlaps in float64. Equal scores are sorted by picture, class and box."""
        limits = int(most.reshape(())), float(overlap.reshape(())), float(least.reshape(()))
        rows: list[tuple[int, int, int]] = []
        for picture, (own, kinds) in enumerate(zip(boxes, scores, strict=True)):
            corners = _corners(own.astype(np.float64), self.clockwise)
            areas = own[:, 2].astype(np.float64) * own[:, 3]
            for kind, score in enumerate(kinds):
                rows += ((picture, kind, place) for place in _kept(corners, areas, score, *limits))
        found = np.array(rows, np.int64).reshape(-1, 3)
        values = scores[found[:, 0], found[:, 1], found[:, 2]]
        if self.sort_result_descending:
            order = np.argsort(-values, kind="stable")
            found, values = found[order], values[order]
        return found, np.column_stack([found[:, :2].astype(np.float32), values]), np.array([len(found)], np.int64)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Squares, turned by an eighth."""
        from dovetail_frontend_openvino.operators.detector_cases import nms_rotated  # here, because only tests need cases

        return nms_rotated(rng)


def _corners(boxes: Array, clockwise: bool) -> Array:
    """[n, 4, 2] of boxes [n, 5]; with y downwards, positive angles turn clockwise."""
    angle = boxes[:, 4] if clockwise else -boxes[:, 4]
    turn = np.stack([np.cos(angle), -np.sin(angle), np.sin(angle), np.cos(angle)], axis=1).reshape(-1, 2, 2)
    sized = _UNIT * boxes[:, None, 2:4]
    return np.asarray(np.einsum("nij,nkj->nki", turn, sized) + boxes[:, None, :2])


def _kept(corners: Array, areas: Array, scores: Array, most: int, limit: float, least: float) -> list[int]:
    waiting = np.flatnonzero(scores > np.float32(least))
    waiting = waiting[np.argsort(-scores[waiting], kind="stable")]
    chosen: list[int] = []
    while waiting.size and len(chosen) < most:
        first, waiting = int(waiting[0]), waiting[1:]
        chosen.append(first)
        shared = _intersections(corners[first], corners[waiting])
        with np.errstate(all="ignore"):
            overlap = shared / (areas[first] + areas[waiting] - shared)
        waiting = waiting[~(overlap > limit)]
    return chosen


def _intersections(box: Array, others: Array) -> Array:
    """Areas [n] that a rectangle [4, 2] shares with others [n, 4, 2]: those of the hulls of corners inside and of crossings."""
    if not len(others):
        return np.zeros(0)
    own = np.broadcast_to(box, others.shape)
    crossings, crosses = _crossings(own, others)
    points = np.concatenate([own, others, crossings], axis=1)
    valid = np.concatenate([_inside(own, others), _inside(others, own), crosses], axis=1)
    count = valid.sum(1)
    center = np.where(valid[..., None], points, 0).sum(1) / np.maximum(count, 1)[:, None]
    away = points - center[:, None]
    angle = np.where(valid, np.arctan2(away[..., 1], away[..., 0]), np.inf)
    order = np.argsort(angle, axis=1)
    ordered = np.take_along_axis(away, order[..., None], 1)
    # Points that do not count repeat the first one, and add no area.
    ordered = np.where(np.take_along_axis(valid, order, 1)[..., None], ordered, ordered[:, :1])
    following = np.roll(ordered, -1, axis=1)
    twice = ordered[..., 0] * following[..., 1] - ordered[..., 1] * following[..., 0]
    return np.where(count > 2, np.abs(twice.sum(1)) / 2, 0)


def _inside(points: Array, boxes: Array) -> Array:
    """Which of the points [n, 4, 2] are in the rectangle [n, 4, 2] of the same place, or on its border."""
    found = np.ones(points.shape[:2], bool)
    for one, other in ((1, 0), (3, 0)):
        side = boxes[:, one] - boxes[:, other]
        place = np.einsum("nkj,nj->nk", points - boxes[:, other, None], side)
        found &= (place >= -1e-9) & (place <= (side**2).sum(1)[:, None] + 1e-9)
    return found


def _crossings(a: Array, b: Array) -> tuple[Array, Array]:
    """Where sides of two quadrilaterals [n, 4, 2] cross: points [n, 16, 2], and which of them are on both sides."""
    starts, others = a[:, :, None], b[:, None]
    along, across = np.roll(a, -1, 1)[:, :, None] - starts, np.roll(b, -1, 1)[:, None] - others
    apart = others - starts
    turn = along[..., 0] * across[..., 1] - along[..., 1] * across[..., 0]
    with np.errstate(all="ignore"):
        here = (apart[..., 0] * across[..., 1] - apart[..., 1] * across[..., 0]) / turn
        there = (apart[..., 0] * along[..., 1] - apart[..., 1] * along[..., 0]) / turn
        valid = (np.abs(turn) > 1e-14) & (here >= 0) & (here <= 1) & (there >= 0) & (there <= 1)
        points = starts + here[..., None] * along
    return np.where(valid[..., None], points, 0).reshape(len(a), 16, 2), valid.reshape(len(a), 16)


_MOST = 1 << 15
"""Samples of a cell along an axis that an attribute may ask for: their places are computed at once."""
_FARTHEST = 1e15
"""Places of samples are counted up to here."""
_PART = 1 << 20
"""Samples of all channels that are taken at once."""


class ROIAlignRotated(Operator):
    """Means [n, C, pooled_h, pooled_w] over the cells of regions with an angle, of samples between the elements of a picture.

    `data` [N, C, H, W]; `rois` [n, 5] are centre, width, height and angle in radians, `batch_indices` [n] their pictures.
    """

    domain: ClassVar[str] = "openvino"
    inputs = ("data: T", "rois: T", "batch_indices: int64")
    outputs = ("features: T",)
    types = {"T": frozenset({DType.FLOAT32})}

    pooled_h: int
    pooled_w: int
    sampling_ratio: int
    spatial_scale: float
    clockwise_mode: bool

    def __post_init__(self) -> None:
        if min(self.pooled_h, self.pooled_w) < 1 or not 0 <= self.sampling_ratio <= _MOST:
            shown = f"'pooled_h' is {self.pooled_h}, 'pooled_w' {self.pooled_w}, 'sampling_ratio' {self.sampling_ratio}"
            raise OperatorError(f"attribute {shown}; accepted: 1 or more, 1 or more, 0 to {_MOST}")

    def infer(self, data: TensorType, rois: TensorType, batch_indices: TensorType) -> TensorType:
        """[n, C, pooled_h, pooled_w]."""
        if data.rank != 4 or rois.rank != 2 or rois.dims[1] != 5 or batch_indices.dims != rois.dims[:1]:
            shown = f"'data' is {data}, 'rois' {rois}, 'batch_indices' {batch_indices}"
            raise ShapeError(f"{shown}; accepted: [N, C, H, W], [n, 5], [n]")
        return data.with_shape((rois.dims[0], data.dims[1], self.pooled_h, self.pooled_w))

    def reference(self, data: Array, rois: Array, batch_indices: Array) -> Array:
        """In float32, region by region. Raises `OperatorError` for pictures that are not there, and regions without a place."""
        if not np.all(abs(rois) <= _FARTHEST):
            raise OperatorError(f"input 'rois' has numbers that are not finite, or above {_FARTHEST:g}")
        if len(batch_indices) and not 0 <= batch_indices.min() <= batch_indices.max() < len(data):
            raise OperatorError(
                f"input 'batch_indices' has {batch_indices.min()} to {batch_indices.max()}; accepted: 0 to {len(data) - 1}"
            )
        found = np.zeros((len(rois), data.shape[1], self.pooled_h, self.pooled_w), np.float32)
        for place, (roi, picture) in enumerate(zip(rois, batch_indices.tolist(), strict=True)):
            found[place] = self._pooled(data[picture], roi)
        return found

    def _pooled(self, picture: Array, roi: Array) -> Array:
        scale, half = np.float32(self.spatial_scale), np.float32(0.5)
        (x, y), (width, height) = roi[:2] * scale - half, roi[2:4] * scale
        angle = roi[4] if self.clockwise_mode else -roi[4]
        cos, sin = np.cos(angle), np.sin(angle)
        sides = np.meshgrid(*(np.array([-1, n], np.float32) - at for n, at in ((picture.shape[2], x), (picture.shape[1], y))))
        v, row, rows = self._samples(height, self.pooled_h, sides[1] * cos - sides[0] * sin)
        u, column, columns = self._samples(width, self.pooled_w, sides[0] * cos + sides[1] * sin)
        means = np.zeros((len(picture), self.pooled_h, self.pooled_w), np.float32)
        sums = (column[:, None] == np.arange(self.pooled_w)).astype(np.float32)
        step = max(_PART // max(len(picture) * len(u), 1), 1)
        for part in (slice(at, at + step) for at in range(0, len(v), step)):
            across = (u * cos - v[part, None] * sin + x).astype(np.float32)
            down = (u * sin + v[part, None] * cos + y).astype(np.float32)
            found = _between(picture, down, across) @ sums
            np.add.at(means.swapaxes(0, 1), row[part], found.swapaxes(0, 1))
        return np.asarray(means / np.float32(rows) / np.float32(columns))

    def _samples(self, extent: Any, cells: int, corners: Array) -> tuple[Array, Array, int]:
        """The places from the centre on of the samples of an axis between the corners of the picture, the cell of each, and how
        many each cell has, the others among them.
        """
        cell = extent / np.float32(cells)
        count = self.sampling_ratio or max(int(np.ceil(cell)), 1)
        ends = np.array([0, cells * count], np.float64)
        if cell > 0:  # two more at either end for rounding
            ends = np.clip((np.array([corners.min(), corners.max()], np.float64) + extent / 2) / cell * count + [-2, 2], *ends)
        cells_of, samples = np.divmod(np.arange(math.floor(ends[0]), math.ceil(ends[1])), count)
        inner = (samples.astype(np.float32) + np.float32(0.5)) * cell / np.float32(count)
        return cells_of.astype(np.float32) * cell + inner - extent / 2, cells_of, count

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """A picture that rises evenly, whose means are known."""
        from dovetail_frontend_openvino.operators.detector_cases import roi_align_rotated  # here, because only tests need cases

        return roi_align_rotated(rng)


def _between(picture: Array, y: Array, x: Array) -> Array:
    """[C, ...] between the elements of a picture [C, H, W]; 0 beyond one element outside."""
    height, width = picture.shape[1:]
    inside = (y >= -1) & (y <= height) & (x >= -1) & (x <= width)
    y, x = np.clip(y, 0, height - 1), np.clip(x, 0, width - 1)
    top, left = y.astype(np.int64), x.astype(np.int64)
    bottom, right = np.minimum(top + 1, height - 1), np.minimum(left + 1, width - 1)
    down, across = y - top, x - left
    upper = picture[:, top, left] * (1 - across) + picture[:, top, right] * across
    lower = picture[:, bottom, left] * (1 - across) + picture[:, bottom, right] * across
    return np.where(inside, upper * (1 - down) + lower * down, np.float32(0))
