"""NonMaxSuppression: https://onnx.ai/onnx/operators/onnx__NonMaxSuppression.html."""

import numpy as np

from dovetail.op import DType, OperatorError, ShapeError, TensorType
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

    def infer(self, boxes: TensorType, scores: TensorType, *_: TensorType | None) -> TensorType:
        """int64 [selected, 3]; how many is known when the data is."""
        fits = boxes.rank == scores.rank == 3 and boxes.dims[2] == 4
        if not fits or (boxes.dims[0], boxes.dims[1]) != (scores.dims[0], scores.dims[2]):
            raise ShapeError(f"input 'boxes' is {boxes}, 'scores' {scores}; accepted: [N, boxes, 4] and [N, classes, boxes]")
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
        found = [
            (batch, kind, box)
            for batch in range(scores.shape[0])
            for kind in range(scores.shape[1])
            for box in _selected(self._corners(boxes[batch]), scores[batch, kind], count, overlap, floor)
        ]
        return np.array(found, np.int64).reshape(-1, 3)

    def _corners(self, boxes: Array) -> Array:
        """[low y, low x, high y, high x] of each box."""
        if self.center_point_box:
            x, y, width, height = boxes.T
            return np.stack((y - height / 2, x - width / 2, y + height / 2, x + width / 2), 1)
        low, high = np.minimum(boxes[:, :2], boxes[:, 2:]), np.maximum(boxes[:, :2], boxes[:, 2:])
        return np.concatenate((low, high), 1)


def _selected(corners: Array, scores: Array, most: int, overlap: float, least: float | None) -> list[int]:
    waiting = np.argsort(-scores, kind="stable")
    if least is not None:
        waiting = waiting[scores[waiting] > least]
    areas = np.prod(corners[:, 2:] - corners[:, :2], 1)
    taken: list[int] = []
    with np.errstate(all="ignore"):
        while waiting.size and len(taken) < most:
            best, waiting = waiting[0], waiting[1:]
            taken.append(int(best))
            low = np.maximum(corners[best, :2], corners[waiting, :2])
            high = np.minimum(corners[best, 2:], corners[waiting, 2:])
            shared = np.prod(np.maximum(high - low, 0), 1)
            joined = areas[best] + areas[waiting] - shared
            waiting = waiting[~(shared > overlap * joined)]
    return taken
