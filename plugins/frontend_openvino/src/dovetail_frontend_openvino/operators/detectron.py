"""Detectors of Detectron2: proposals, features of regions, and the boxes of classes."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["DetectronDetectionOutput", "DetectronROIFeatureExtractor", "GenerateProposals"]

Array = NDArray[Any]

_MOST = np.float32(np.log(1000 / 16))
"""The greatest logarithm by which proposals are stretched."""


def _moved(boxes: Array, deltas: Array, most: np.float32, pixel: np.float32) -> Array:
    """Boxes [..., 4] moved by parts of their sizes, and stretched by exponentials of at most `most`: deltas [..., 4]."""
    sizes = boxes[..., 2:] - boxes[..., :2] + pixel
    centers = deltas[..., :2] * sizes + (boxes[..., :2] + np.float32(0.5) * sizes)
    reach = np.float32(0.5) * (np.exp(np.minimum(deltas[..., 2:], most)) * sizes)
    return np.concatenate([centers - reach, centers + reach - pixel], axis=-1)


def _apart(boxes: Array, limit: float, pixel: np.float32, most: int) -> list[int]:
    """The places of the first boxes [n, 4] that overlap none of those before them by more than the limit."""
    sizes = boxes[:, 2:] - boxes[:, :2] + pixel
    areas, waiting, chosen = sizes.prod(1), np.arange(len(boxes)), list[int]()
    while waiting.size and len(chosen) < most:
        first, waiting = int(waiting[0]), waiting[1:]
        chosen.append(first)
        box, others = boxes[first], boxes[waiting]
        meets = ((box[:2] <= others[:, 2:]) & (others[:, :2] <= box[2:])).all(1)
        sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]) + pixel
        shared = np.maximum(sides, 0).prod(1)
        overlap = np.where(meets, shared / (areas[first] + areas[waiting] - shared), np.float32(0))
        waiting = waiting[~(overlap > np.float32(limit))]
    return chosen


class GenerateProposals(Operator):
    """Regions [n, 4] of all pictures, their scores [n], and how many each picture has [N]: the best that overlap little.

    `im_info` [N, 3] or [N, 4] is height, width and one or two scales, by which `min_size` is multiplied; `anchors` [H, W, A, 4],
    `deltas` [N, 4 * A, H, W] and `scores` [N, A, H, W]. Equal scores keep the order of rows, columns and anchors. With `padded`
    each picture has `post_nms_count` rows, zeros behind the last; boxes that are too small then have the score 0, and those
    of score 0 are left out.
    """

    domain: ClassVar[str] = "openvino"
    inputs = ("im_info: T", "anchors: T", "deltas: T", "scores: T")
    outputs = ("rois: T", "roi_scores: T", "roi_num: int64")
    types = {"T": frozenset({DType.FLOAT32})}

    min_size: float
    nms_threshold: float
    pre_nms_count: int
    post_nms_count: int
    normalized: bool = True
    padded: bool = False

    def __post_init__(self) -> None:
        for name in ("pre_nms_count", "post_nms_count"):
            if getattr(self, name) < 1:
                raise OperatorError(f"attribute '{name}' is {getattr(self, name)}; accepted: 1 or more")

    def infer(self, im_info: TensorType, anchors: TensorType, deltas: TensorType, scores: TensorType) -> tuple[TensorType, ...]:
        """[n, 4], [n] and [N]; n is known when the data is, or with `padded` N * post_nms_count."""
        if anchors.rank != 4 or scores.rank != 4 or im_info.rank != 2:
            raise ShapeError(f"'im_info' is {im_info}, 'anchors' {anchors}, 'scores' {scores}; accepted: ranks 2, 4, 4")
        (height, width, count, _), pictures = anchors.dims, scores.dims[0]
        fits = scores.dims == (pictures, count, height, width) and deltas.dims == (pictures, 4 * count, height, width)
        if not fits or anchors.dims[3] != 4 or im_info.dims[0] != pictures or im_info.dims[1] not in (3, 4):
            shown = f"'im_info' is {im_info}, 'anchors' {anchors}, 'deltas' {deltas}, 'scores' {scores}"
            raise ShapeError(f"{shown}; accepted: [N, 3 or 4], [H, W, A, 4], [N, 4 * A, H, W], [N, A, H, W]")
        rows = pictures * self.post_nms_count if self.padded else None
        return scores.with_shape((rows, 4)), scores.with_shape((rows,)), TensorType(DType.INT64, (pictures,))

    def reference(self, im_info: Array, anchors: Array, deltas: Array, scores: Array) -> tuple[Array, ...]:
        """In float32, picture by picture."""
        count = anchors.shape[2]
        flat = anchors.reshape(-1, 4)
        found: list[tuple[Array, Array]] = []
        with np.errstate(all="ignore"):
            for info, delta, score in zip(im_info, deltas, scores, strict=True):
                own = delta.reshape(count, 4, *delta.shape[1:]).transpose(2, 3, 0, 1).reshape(-1, 4)
                found.append(self._of_picture(info, flat, own, score.transpose(1, 2, 0).reshape(-1)))
        rois = np.concatenate([np.empty((0, 4), np.float32), *(boxes for boxes, _ in found)])
        kept = np.concatenate([np.empty(0, np.float32), *(own for _, own in found)])
        return rois, kept, np.array([len(own) for _, own in found], np.int64)

    def _of_picture(self, info: Array, anchors: Array, deltas: Array, scores: Array) -> tuple[Array, Array]:
        pixel = np.float32(not self.normalized)
        edge = np.tile(info[1::-1] - pixel, 2)
        boxes = np.maximum(np.minimum(_moved(anchors, deltas, _MOST, pixel), edge), 0)
        least = np.float32(self.min_size) * (info[[-1, 2]] if not self.padded else np.ones(2, np.float32))
        large = np.asarray((boxes[:, 2:] - boxes[:, :2] + pixel >= least).all(1))
        order = np.argsort(-scores, kind="stable")[: self.pre_nms_count]
        order = order[large[order] & (scores[order] != 0) if self.padded else large[order]]
        chosen = order[_apart(boxes[order], self.nms_threshold, pixel, self.post_nms_count)]
        if not self.padded:
            return boxes[chosen], scores[chosen]
        rows, own = np.zeros((self.post_nms_count, 4), np.float32), np.zeros(self.post_nms_count, np.float32)
        rows[: len(chosen)], own[: len(chosen)] = boxes[chosen], scores[chosen]
        return rows, own

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Anchors that are not moved."""
        from dovetail_frontend_openvino.operators.detector_cases import generate_proposals  # here, because only tests need cases

        return generate_proposals(rng)


class DetectronDetectionOutput(Operator):
    """The best boxes [max_detections_per_image, 4] of all classes but the first, their classes, and their scores.

    `rois` [n, 4] are moved by `deltas` [n, 4 * classes] and suppressed class by class with `scores` [n, classes]. Where there
    are more than fit the best are sorted by score, else classes follow each other; zeros are behind the last.
    """

    domain: ClassVar[str] = "openvino"
    inputs = ("rois: T", "deltas: T", "scores: T", "im_info: T")
    outputs = ("boxes: T", "classes: int32", "box_scores: T")
    types = {"T": frozenset({DType.FLOAT32})}

    score_threshold: float
    nms_threshold: float
    num_classes: int
    post_nms_count: int
    max_detections_per_image: int
    max_delta_log_wh: float
    deltas_weights: tuple[float, ...]

    def __post_init__(self) -> None:
        if len(self.deltas_weights) != 4 or 0 in self.deltas_weights:
            raise OperatorError(f"attribute 'deltas_weights' is {self.deltas_weights}; accepted: 4 numbers but 0")
        if self.max_detections_per_image < 1:
            raise OperatorError(f"attribute 'max_detections_per_image' is {self.max_detections_per_image}; accepted: 1 or more")

    def infer(self, rois: TensorType, deltas: TensorType, scores: TensorType, im_info: TensorType) -> tuple[TensorType, ...]:
        """[most, 4], [most] and [most]."""
        count = rois.dims[:1]
        fits = rois.dims == (*count, 4) and scores.dims == (*count, self.num_classes)
        if not fits or deltas.dims != (*count, 4 * self.num_classes):
            shown = f"'rois' is {rois}, 'deltas' {deltas}, 'scores' {scores}"
            raise ShapeError(f"{shown}; accepted: [n, 4], [n, {4 * self.num_classes}], [n, {self.num_classes}]")
        most = self.max_detections_per_image
        return rois.with_shape((most, 4)), TensorType(DType.INT32, (most,)), rois.with_shape((most,))

    def reference(self, rois: Array, deltas: Array, scores: Array, im_info: Array) -> tuple[Array, ...]:
        """In float32, class by class; boxes are not limited to the picture's lower and right edges, as in OpenVINO."""
        one = np.float32(1)
        with np.errstate(all="ignore"):
            scaled = deltas.reshape(len(rois), self.num_classes, 4) / np.array(self.deltas_weights, np.float32)
            boxes = np.maximum(_moved(rois[:, None], scaled, np.float32(self.max_delta_log_wh), one), 0)
            empty = np.asarray((rois[:, 2:] <= rois[:, :2]).any(1))
            boxes[empty], own = 0, np.where(empty[:, None], np.float32(0), scores)
            found = [self._of_class(boxes[:, kind], own[:, kind], kind) for kind in range(1, self.num_classes)]
        table = np.concatenate([np.empty((0, 7)), *found])
        most = self.max_detections_per_image
        if len(table) > most:
            table = table[np.lexsort((table[:, 2], -table[:, 1]))[:most]]
        full = np.zeros((most, 7))
        full[: len(table)] = table
        return full[:, 3:].astype(np.float32), full[:, 0].astype(np.int32), full[:, 1].astype(np.float32)

    def _of_class(self, boxes: Array, scores: Array, kind: int) -> Array:
        """Rows of class, score, place and corners."""
        places = np.flatnonzero(scores > np.float32(self.score_threshold))
        places = places[np.argsort(-scores[places], kind="stable")]
        most = len(places) if self.post_nms_count < 0 else self.post_nms_count
        kept = places[_apart(boxes[places], self.nms_threshold, np.float32(1), most)]
        front = np.stack([np.full(len(kept), kind), scores[kept], kept], axis=1)
        return np.concatenate([front, boxes[kept]], axis=1)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Boxes that are not moved."""
        from dovetail_frontend_openvino.operators.detector_cases import (
            detectron_detection_output,  # here, because only tests need cases
        )

        return detectron_detection_output(rng)


_SAMPLES = 1 << 15
"""Samples of a cell along an axis that an attribute may ask for: their places are computed at once."""


def _near(corners: Array, step: Any, samples: int, cells: int) -> tuple[Array, int]:
    """The first sample [size, 1] of each mean that may be inside an axis, and how many may be: a region may be far larger."""
    low = np.clip(np.floor((-1 - corners) / step - 2), 0, samples - 1)
    high = np.clip(np.floor((cells - corners) / step + 2), 0, samples - 1)
    many = int((high - low).max()) + 1
    return np.asarray(np.minimum(low, samples - many)), many


class DetectronROIFeatureExtractor(Operator):
    """Features [n, C, output_size, output_size] of regions [n, 4], each from the level of a pyramid that fits its size.

    `features` are [1, C, height, width] for each level, `pyramid_scales` by how much each is smaller than the picture. Means of
    `sampling_ratio` ** 2 samples, or with 0 of as many as there are cells. Regions without area are zeros.
    """

    domain: ClassVar[str] = "openvino"
    inputs = ("rois: T", "features*: T")
    outputs = ("roi_features: T",)
    types = {"T": frozenset({DType.FLOAT32})}

    output_size: int
    sampling_ratio: int
    pyramid_scales: tuple[int, ...]
    aligned: bool = False

    def __post_init__(self) -> None:
        if self.output_size < 1 or not 0 <= self.sampling_ratio <= _SAMPLES or min(self.pyramid_scales, default=0) < 1:
            scales = f"'sampling_ratio' {self.sampling_ratio}, 'pyramid_scales' {self.pyramid_scales}"
            accepted = f"from 1 on, 0 to {_SAMPLES}, 1 on"
            raise OperatorError(f"attribute 'output_size' is {self.output_size}, {scales}; accepted: {accepted}")

    def infer(self, rois: TensorType, *features: TensorType) -> TensorType:
        """[n, C, output_size, output_size]."""
        alike = {(f.rank, f.dims[:2]) for f in features}
        if rois.rank != 2 or rois.dims[1] != 4 or len(features) != len(self.pyramid_scales) or len(alike) != 1:
            raise ShapeError(
                f"'rois' is {rois}, 'features' {features}; accepted: [n, 4], {len(self.pyramid_scales)} of [1, C, H, W]"
            )
        if features[0].rank != 4 or features[0].dims[0] != 1:
            raise ShapeError(f"'features' are {features}; accepted: [1, C, H, W]")
        return rois.with_shape((rois.dims[0], features[0].dims[1], self.output_size, self.output_size))

    def reference(self, rois: Array, *features: Array) -> Array:
        """In float32, level by level and region by region."""
        found = np.zeros((len(rois), features[0].shape[1], self.output_size, self.output_size), np.float32)
        levels = self._levels(rois)
        for level, (picture, scale) in enumerate(zip(features, self.pyramid_scales, strict=True)):
            for place in np.flatnonzero(levels == level).tolist():
                with np.errstate(all="ignore"):  # regions may be beyond float32
                    found[place] = self._pooled(picture[0], rois[place] * (np.float32(1) / np.float32(scale)))
        return found

    def _levels(self, rois: Array) -> Array:
        """The level of each region; as many as there are levels for one without area."""
        most = len(self.pyramid_scales)
        with np.errstate(all="ignore"):
            area = (rois[:, 2] - rois[:, 0]) * (rois[:, 3] - rois[:, 1])
            level = np.floor(np.log2(np.sqrt(area) / np.float32(224) + np.float32(1e-6)) + np.float32(2))
            return np.where(area > 0, np.clip(level, 0, most - 1), most)

    def _pooled(self, picture: Array, roi: Array) -> Array:
        """[C, size, size] of a picture [C, H, W]: rows of weights for each axis, because the samples are a grid."""
        size, half = self.output_size, np.float32(0.5 if self.aligned else 0)
        start, extent = roi[:2] - half, np.maximum(roi[2:] - roi[:2], np.float32(1))
        across = self._weights(start[0], extent[0] / np.float32(size), picture.shape[2])
        down = self._weights(start[1], extent[1] / np.float32(size), picture.shape[1])
        return np.asarray(down @ picture @ across.T)

    def _weights(self, start: Any, cell: Any, cells: int) -> Array:
        """[size, cells]: how much each element of an axis counts in each mean."""
        samples = self.sampling_ratio or int(np.ceil(cell))
        corners = start + np.arange(self.output_size, dtype=np.float32)[:, None] * cell
        first, span = _near(corners, cell / np.float32(samples), samples, cells)
        inner = (first + np.arange(span, dtype=np.float32) + np.float32(0.5)) * cell / np.float32(samples)
        places = (corners + inner).astype(np.float32)
        inside = (places >= -1) & (places <= cells)
        places = np.clip(np.nan_to_num(places), 0, cells - 1)
        low = np.minimum(places.astype(np.int64), cells - 1)
        part = places - low
        weights = np.zeros((self.output_size, cells), np.float32)
        rows = np.broadcast_to(np.arange(self.output_size)[:, None], low.shape)
        np.add.at(weights, (rows, low), np.where(inside, 1 - part, 0))
        np.add.at(weights, (rows, np.minimum(low + 1, cells - 1)), np.where(inside, part, 0))
        return weights / np.float32(samples)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Constant features, whose means are known."""
        from dovetail_frontend_openvino.operators.detector_cases import (
            detectron_roi_feature_extractor,  # here, because only tests need cases
        )

        return detectron_roi_feature_extractor(rng)
