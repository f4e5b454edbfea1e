"""Proposals of regions from the scores of anchors."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["Proposal"]

Array = NDArray[Any]


class Proposal(Operator):
    """Regions [N * post_nms_topn, 5] of [picture, x1, y1, x2, y2], and their scores: the best boxes that overlap little.

    `class_probs` [N, 2 * anchors, H, W] has the scores of the background before those of the boxes, `bbox_deltas`
    [N, 4 * anchors, H, W] moves and stretches the anchors; `image_shape` is height, width and one or two scales. Where
    there are fewer boxes, -1 is the picture of the first row behind them, and all else is 0.
    """

    domain: ClassVar[str] = "openvino"
    inputs = ("class_probs: T", "bbox_deltas: T", "image_shape: T")
    outputs = ("rois: T", "probs: T")
    types = {"T": FLOATS}

    base_size: int
    pre_nms_topn: int
    post_nms_topn: int
    nms_thresh: float
    feat_stride: int
    min_size: int
    ratio: tuple[float, ...]
    scale: tuple[float, ...]
    clip_before_nms: bool = True
    clip_after_nms: bool = False
    normalize: bool = False
    box_size_scale: float = 1.0
    box_coordinate_scale: float = 1.0
    framework: str = ""

    def __post_init__(self) -> None:
        if self.framework not in ("", "tensorflow"):
            raise OperatorError(f"attribute 'framework' is {self.framework!r}; accepted: '', 'tensorflow'")
        for name in ("pre_nms_topn", "post_nms_topn", "base_size", "feat_stride"):
            if getattr(self, name) < 1:
                raise OperatorError(f"attribute '{name}' is {getattr(self, name)}; accepted: 1 or more")
        if min(self.ratio, default=0) <= 0 or min(self.scale, default=0) <= 0:
            raise OperatorError(f"attribute 'ratio' is {self.ratio}, 'scale' {self.scale}; accepted: numbers above 0")

    @property
    def _pixel(self) -> float:
        """By what a box is larger than the distance of its corners."""
        return 0.0 if self.framework else 1.0

    def infer(self, class_probs: TensorType, bbox_deltas: TensorType, image_shape: TensorType) -> tuple[TensorType, TensorType]:
        """[N * post_nms_topn, 5] and [N * post_nms_topn]."""
        count = len(self.ratio) * len(self.scale)
        batch, area = class_probs.dims[:1], class_probs.dims[2:]
        fits = class_probs.rank == 4 and class_probs.dims == (*batch, 2 * count, *area)
        if not fits or bbox_deltas.dims != (*batch, 4 * count, *area) or image_shape.size not in (3, 4):
            shown = f"'class_probs' is {class_probs}, 'bbox_deltas' {bbox_deltas}, 'image_shape' {image_shape}"
            raise ShapeError(f"{shown}; accepted: [N, {2 * count}, H, W], [N, {4 * count}, H, W], 3 or 4 numbers")
        rows = batch[0] * self.post_nms_topn
        return class_probs.with_shape((rows, 5)), class_probs.with_shape((rows,))

    def reference(self, class_probs: Array, bbox_deltas: Array, image_shape: Array) -> tuple[Array, Array]:
        """In float32, picture by picture."""
        count, most = len(self.ratio) * len(self.scale), self.post_nms_topn
        shape = image_shape.reshape(-1).astype(np.float32)
        rois, probs = np.zeros((len(class_probs), most, 5), np.float32), np.zeros((len(class_probs), most), np.float32)
        anchors = self._placed(self._anchors(), *class_probs.shape[2:])
        with np.errstate(all="ignore"):
            for picture, (scores, deltas) in enumerate(zip(class_probs, bbox_deltas, strict=True)):
                own = scores[count:].astype(np.float32).transpose(1, 2, 0).reshape(-1)
                moved = deltas.astype(np.float32).reshape(count, 4, *deltas.shape[1:]).transpose(1, 2, 3, 0).reshape(4, -1)
                boxes, own = self._boxes(anchors, moved, own, shape)
                order = np.argsort(-own, kind="stable")[: self.pre_nms_topn]
                chosen = order[self._apart(boxes[:, order])]
                rois[picture, : len(chosen), 0] = picture
                rois[picture, : len(chosen), 1:] = self._shown(boxes[:, chosen], shape).T
                probs[picture, : len(chosen)] = own[chosen]
                rois[picture, len(chosen) : len(chosen) + 1, 0] = -1
        dtype = class_probs.dtype
        return rois.reshape(-1, 5).astype(dtype), probs.reshape(-1).astype(dtype)

    def _anchors(self) -> Array:
        """[4, ratios * scales]: corners of the boxes around the first cell."""
        base, pixel = np.float32(self.base_size), np.float32(self._pixel)
        ratios, scales = np.array(self.ratio, np.float32)[:, None], np.array(self.scale, np.float32)
        widths = np.sqrt(base * base / ratios)
        widths = widths if self.framework else np.floor(widths + np.float32(0.5))
        heights = widths * ratios if self.framework else np.floor(widths * ratios + np.float32(0.5))
        halves = [((sides * scales - pixel) / 2).reshape(-1) for sides in (widths, heights)]
        center = (base - pixel) / 2 - (base / 2 if self.framework else np.float32(0))
        return np.stack([center - halves[0], center - halves[1], center + halves[0], center + halves[1]]).astype(np.float32)

    def _placed(self, anchors: Array, height: int, width: int) -> Array:
        """[4, H * W * anchors]. Tensorflow's proposals have rows and columns exchanged."""
        down, across = np.indices((height, width), np.float32) * np.float32(self.feat_stride)
        x, y = (down, across) if self.framework else (across, down)
        return np.asarray((np.stack([x, y, x, y])[..., None] + anchors[:, None, None]).reshape(4, -1))

    def _boxes(self, anchors: Array, deltas: Array, scores: Array, shape: Array) -> tuple[Array, Array]:
        """The anchors moved and stretched, and their scores: 0 for a box that is too small."""
        edge, pixel = self._edge(shape), np.float32(self._pixel)
        corners = anchors.reshape(2, 2, -1)
        corners = np.clip(corners, 0, edge) if self.framework else corners
        sizes = corners[1] - corners[0] + pixel
        centers = corners[0] + sizes / 2 + deltas[:2] / np.float32(self.box_coordinate_scale) * sizes
        reach = np.exp(deltas[2:] / np.float32(self.box_size_scale)) * sizes / 2
        boxes = np.stack([centers - reach, centers + reach])
        boxes = np.clip(boxes, 0, edge - pixel) if self.clip_before_nms else boxes
        least = np.float32(self.min_size) * shape[[-1, 2], None]
        large = (boxes[1] - boxes[0] + pixel >= least).all(0)
        return boxes.reshape(4, -1), np.where(large, scores, 0)

    def _edge(self, shape: Array) -> Array:
        """[2, 1]: the size of the picture along x and y, which Tensorflow's proposals have exchanged."""
        return shape[:2, None] if self.framework else shape[1::-1, None]

    def _apart(self, boxes: Array) -> Array:
        """The places of the first boxes [4, n] that overlap none of those before them."""
        pixel, limit = np.float32(self._pixel), np.float32(self.nms_thresh)
        areas = (boxes[2] - boxes[0] + pixel) * (boxes[3] - boxes[1] + pixel)
        waiting, chosen = np.arange(boxes.shape[1]), list[int]()
        while waiting.size and len(chosen) < self.post_nms_topn:
            first, waiting = waiting[0], waiting[1:]
            chosen.append(int(first))
            box, others = boxes[:, first, None], boxes[:, waiting]
            sides = np.minimum(box[2:], others[2:]) - np.maximum(box[:2], others[:2])
            shared = np.maximum(sides + pixel, 0).prod(0) * (sides >= 0).all(0)
            waiting = waiting[~(shared / (areas[first] + areas[waiting] - shared) > limit)]
        return np.array(chosen, np.int64)

    def _shown(self, boxes: Array, shape: Array) -> Array:
        edge = np.tile(self._edge(shape), (2, 1))
        boxes = np.clip(boxes, 0, edge) if self.clip_after_nms else boxes
        return boxes / edge if self.normalize else boxes

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Anchors that are not moved."""
        from dovetail_frontend_openvino.operators.cases import proposal  # here, because only tests need cases

        return proposal(rng)
