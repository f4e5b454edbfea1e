"""NonMaxSuppression: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html."""

import numpy as np

from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._boxes import are_few, by_score, far, leading, of_row_apart, of_shared, selected, window
from dovetail_ops_onnx._shapes import Movement
from dovetail_ops_onnx._types import Array


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
            rows, places = by_score(scores.reshape(-1, scores.shape[2]), floor)
            ends = np.searchsorted(rows, np.arange(len(scores) + 1) * classes)
            parts = [
                self._of_batch(each, rows[start:end] - first * classes, places[start:end], count, overlap)
                for first, (each, start, end) in enumerate(zip(boxes, ends[:-1], ends[1:], strict=True))
            ]
            chosen = np.concatenate(parts)
        batches, kinds = np.divmod(rows[chosen], classes)
        return np.stack((batches, kinds, places[chosen]), 1)

    def _of_batch(self, boxes: Array, rows: Array, places: Array, most: int, overlap: float) -> Array:
        """Which boxes [n, 4] at the places are selected of rows that all have the same boxes."""
        used = np.flatnonzero(np.bincount(places))
        if not are_few(rows, len(used), most):
            return selected(rows, self._edges(boxes[places]), most, overlap)
        own = np.empty(len(boxes), np.int64)
        own[used] = np.arange(len(used))
        return of_shared(rows, own[places], self._edges(boxes[used]), most, overlap)

    def _of_one_row(self, boxes: Array, keys: Array, least: float | None, most: int, overlap: float) -> Array:
        """The places of the boxes [n, 4] that are selected; `keys` are their scores, negative."""
        places = np.arange(len(keys)) if least is None else np.flatnonzero(keys < -least)
        keys = keys[places]
        first = leading(keys, window(most))
        chosen, near = np.empty(0, np.int64), np.empty((5, 0), boxes.dtype)
        for part in (first, ~first) if first.any() else (slice(None),):
            order = places[part][np.argsort(keys[part], kind="stable")]
            edges = self._edges(boxes[order])
            if len(chosen):
                left = far(near, edges, overlap)
                order, edges = order[left], edges[:, left]
            found = of_row_apart(edges, most - len(chosen), overlap)
            chosen, near = np.concatenate((chosen, order[found])), edges[:, found]
            if len(chosen) == most:
                break
        return chosen

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
