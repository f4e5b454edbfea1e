"""DetectionPostProcess: from box encodings, class scores and anchors to detections; TFLite's TFLite_Detection_PostProcess."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, OpenCLKernel, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_tim_vx._base import TimVxOperator
from dovetail_ops_tim_vx._shapes import check_rank, check_shapes

Array = NDArray[Any]
Types = Sequence[TensorType | None]

GROUP = 64
"""Work items for each image; every OpenCL 1.2 GPU allows as many."""


def _defines(op: Operator, inputs: Types, outputs: Sequence[TensorType]) -> Mapping[str, int]:
    assert isinstance(op, DetectionPostProcess)
    encodings, scores = inputs[:2]
    assert encodings is not None
    assert scores is not None
    _, boxes, columns = scores.dims
    return {
        "BOXES": boxes,
        "CODE": encodings.dims[2],
        "COLUMNS": columns,
        "OFFSET": columns - op.num_classes,
        "CLASSES": op.num_classes,
        "MAX_DETECTIONS": op.max_detections,
        "MAX_CLASSES": op.max_classes_per_detection,
        "PER_CLASS": op.detections_per_class,
        "REGULAR": int(op.use_regular_nms),
        "GROUP": GROUP,
    }


def _for_each_box(nbytes: int) -> Callable[[Types, Sequence[TensorType]], int]:
    def size(inputs: Types, outputs: Sequence[TensorType]) -> int:
        assert inputs[0] is not None
        return max(1, math.prod(inputs[0].dims[:2])) * nbytes

    return size


class DetectionPostProcess(TimVxOperator):
    """Decode boxes, suppress those that overlap better ones, and give the best, by the rules of TFLite's operator.

    box_encodings [batch, boxes, 4 or more] (y, x, h, w; further numbers are not looked at), class_scores [batch, boxes,
    num_classes], with a background class in front if there is one column more, anchors [boxes, 4] (y, x, h, w). A box has its
    centre at y / y_scale * anchor_h + anchor_y, its height is exp(h / h_scale) * anchor_h; x and w likewise.

    Outputs, with S = max_detections * max_classes_per_detection: boxes [batch, S, 4] as ymin, xmin, ymax, xmax, classes [batch,
    S] counted without the background, scores [batch, S], num [batch]; all of the inputs' type, and zero beyond the
    detections. Each image of the batch by itself (TFLite takes one).

    Suppression is greedy: of the boxes whose score is at least nms_score_threshold the best stays, and those with which it has
    an intersection over union above nms_iou_threshold go; and so on. A box without area overlaps none. By default that is done
    once, with the best score of each box: up to max_detections boxes, each given for its max_classes_per_detection best
    classes; num counts boxes. With `use_regular_nms` it is done for every class, up to detections_per_class boxes, and the best
    max_detections of all classes are given.

    Of equal scores the lower box, then the lower class counts; NaN counts as the lowest score. Where TFLite leaves outputs
    unwritten, ours are zero. Bytes are not taken: put a DequantizeLinear before. TIM-VX names this operator as an example of a
    customized one, and has none.
    """

    inputs = ("box_encodings: T", "class_scores: T", "anchors: T")
    outputs = ("boxes: T", "classes: T", "scores: T", "num: T")
    types = {"T": frozenset({DType.FLOAT32, DType.FLOAT64})}
    kernels = (
        OpenCLKernel(
            source=OpenCLKernel.text_of(__package__, "detection_post_process.cl"),
            entry={"float32": "detection_post_process_F32"},
            scalars=(
                ("nms_score_threshold", "float"),
                ("nms_iou_threshold", "float"),
                *((f"{side}_scale", "float") for side in "yxhw"),
            ),
            defines=_defines,
            global_size=lambda inputs, outputs: (GROUP * outputs[0].dims[0],),
            local_size=(GROUP,),
            scratch=(
                _for_each_box(16),
                _for_each_box(4),
                _for_each_box(1),
                lambda inputs, outputs: 4 * math.prod(outputs[0].dims[:2]),
            ),
            origin="dovetail_ops_tim_vx/detection_post_process.cl",
        ),
    )

    max_detections: int
    num_classes: int
    nms_score_threshold: float
    nms_iou_threshold: float
    y_scale: float
    x_scale: float
    h_scale: float
    w_scale: float
    max_classes_per_detection: int = 1
    detections_per_class: int = 100
    use_regular_nms: bool = False

    def __post_init__(self) -> None:
        for name in ("max_detections", "num_classes", "max_classes_per_detection", "detections_per_class"):
            if getattr(self, name) < 1:
                raise OperatorError(f"attribute {name!r} is {getattr(self, name)}; accepted: 1 or more")
        for name in ("y_scale", "x_scale", "h_scale", "w_scale"):
            if getattr(self, name) == 0 or not math.isfinite(getattr(self, name)):
                raise OperatorError(f"attribute {name!r} is {getattr(self, name)}; accepted: any number but 0")
        if not 0 < self.nms_iou_threshold <= 1:
            raise OperatorError(f"attribute 'nms_iou_threshold' is {self.nms_iou_threshold}; accepted: above 0, up to 1")

    @property
    def slots(self) -> int:
        """How many detections the outputs have room for."""
        return self.max_detections * self.max_classes_per_detection

    def infer(self, box_encodings: TensorType, class_scores: TensorType, anchors: TensorType) -> tuple[TensorType, ...]:
        """The four outputs. Raises `ShapeError` for inputs that do not fit."""
        batch, boxes, code = check_rank("box_encodings", box_encodings, ("batch", "boxes", "4 or more"))
        _, _, columns = check_rank("class_scores", class_scores, ("batch", "boxes", "classes"))
        if code < 4:
            raise ShapeError(f"input 'box_encodings' is {box_encodings}; accepted: [batch, boxes, 4 or more]")
        if columns - self.num_classes not in (0, 1):
            accepted = f"{self.num_classes} classes (num_classes), and a background in front or none"
            raise ShapeError(f"input 'class_scores' is {class_scores}; accepted: {accepted}")
        check_shapes(("class_scores", class_scores, (batch, boxes, columns)), ("anchors", anchors, (boxes, 4)))
        found = box_encodings.with_shape((batch, self.slots))
        return found.with_shape((batch, self.slots, 4)), found, found, found.with_shape((batch,))

    def reference(self, box_encodings: Array, class_scores: Array, anchors: Array) -> tuple[Array, ...]:
        """Image by image in NumPy."""
        types = self.infer(*(TensorType.of(a) for a in (box_encodings, class_scores, anchors)))
        outputs = tuple(np.zeros(t.dims, t.dtype.numpy) for t in types)
        first = class_scores.shape[2] - self.num_classes
        for image in range(box_encodings.shape[0]):
            with np.errstate(all="ignore"):
                boxes = self._decoded(box_encodings[image], anchors)
                scores = np.where(np.isnan(class_scores[image]), -np.inf, class_scores[image])[:, first:]
                found, count = (self._regular if self.use_regular_nms else self._fast)(boxes, scores)
            for slot, (box, which, score) in found:
                outputs[0][image, slot], outputs[1][image, slot], outputs[2][image, slot] = boxes[box], which, score
            outputs[3][image] = count
        return outputs

    def _decoded(self, encodings: Array, anchors: Array) -> Array:
        """[boxes, 4] as ymin, xmin, ymax, xmax, computed in float64 and rounded once for the corners, like TFLite."""
        y, x, h, w = encodings[:, :4].astype(np.float64).T
        anchor_y, anchor_x, anchor_h, anchor_w = anchors.astype(np.float64).T
        centre_y, centre_x = y / self.y_scale * anchor_h + anchor_y, x / self.x_scale * anchor_w + anchor_x
        half_h, half_w = 0.5 * np.exp(h / self.h_scale) * anchor_h, 0.5 * np.exp(w / self.w_scale) * anchor_w
        corners = [centre_y - half_h, centre_x - half_w, centre_y + half_h, centre_x + half_w]
        return np.stack(corners, axis=1).astype(encodings.dtype)

    def _kept(self, boxes: Array, scores: Array, limit: int) -> Iterator[int]:
        """Indices of the boxes that suppression leaves, the best first."""
        order = np.argsort(-scores, kind="stable")
        waiting = order[scores[order] >= self.nms_score_threshold]
        for _ in range(limit):
            if waiting.size == 0:
                return
            yield int(waiting[0])
            overlaps = _overlaps(boxes[waiting[0]], boxes[waiting])
            overlaps[0] = np.inf
            waiting = waiting[~(overlaps > self.nms_iou_threshold)]

    def _fast(self, boxes: Array, scores: Array) -> tuple[list[tuple[int, tuple[int, int, float]]], int]:
        kept = list(self._kept(boxes, scores.max(axis=1), self.max_detections))
        found = []
        for place, box in enumerate(kept):
            classes = np.argsort(-scores[box], kind="stable")[: self.max_classes_per_detection]
            for each, which in enumerate(classes):
                found.append((place * self.max_classes_per_detection + each, (box, int(which), float(scores[box, which]))))
        return found, len(kept)

    def _regular(self, boxes: Array, scores: Array) -> tuple[list[tuple[int, tuple[int, int, float]]], int]:
        kept = [
            (box, which, float(scores[box, which]))
            for which in range(self.num_classes)
            for box in self._kept(boxes, scores[:, which], self.detections_per_class)
        ]
        best = sorted(kept, key=lambda detection: -detection[2])[: self.max_detections]
        return list(enumerate(best)), len(best)


def _overlaps(box: Array, others: Array) -> Array:
    """Intersection over union of one box with each of `others`; 0 where one has no area."""
    sides, other_sides = box[2:] - box[:2], others[:, 2:] - others[:, :2]
    shared = np.maximum(np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]), 0).prod(axis=1)
    union = sides.prod() + other_sides.prod(axis=1) - shared
    has_area = np.all(sides > 0) & np.all(other_sides > 0, axis=1)
    return np.asarray(np.where(has_area, shared / union, 0))
