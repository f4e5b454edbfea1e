"""Cases of the operators of detectors: small results that are known without them."""

import dataclasses
from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_frontend_openvino.operators.detectron import (
    DetectronDetectionOutput,
    DetectronROIFeatureExtractor,
    GenerateProposals,
)
from dovetail_frontend_openvino.operators.rotated import NMSRotated, ROIAlignRotated
from dovetail_frontend_openvino.operators.suppressions import MatrixNms, MulticlassNms

__all__ = [
    "detectron_detection_output",
    "detectron_roi_feature_extractor",
    "generate_proposals",
    "matrix_nms",
    "multiclass_nms",
    "nms_rotated",
    "roi_align_rotated",
]

_BOXES = np.array([[[0, 0, 1, 1], [0, 0.5, 1, 1.5], [4, 4, 5, 5]]], np.float32)
"""Two that share a third of their union, and one apart."""
_SCORES = np.array([[[0.9, 0.6, 0.3]]], np.float32)


def matrix_nms(rng: np.random.Generator) -> Iterator[Case]:
    """The second score decays by 1 - 1/3; thresholds, none."""
    rows = np.array([[0, 0.9, 0, 0, 1, 1], [0, 0.4, 0, 0.5, 1, 1.5], [0, 0.3, 4, 4, 5, 5]], np.float32)
    places, count = np.array([[0], [1], [2]]), np.array([3])
    yield Case("linear", MatrixNms(), (_BOXES, _SCORES), (rows, places, count))
    kept = (rows[:2], places[:2], np.array([2]))
    yield Case("threshold", MatrixNms(post_threshold=0.35), (_BOXES, _SCORES), kept)
    yield Case("most", MatrixNms(keep_top_k=2), (_BOXES, _SCORES), kept)
    nothing = (rows[:0], places[:0], np.array([0]))
    yield Case("background", MatrixNms(background_class=0), (_BOXES, _SCORES), nothing)
    gaussian = MatrixNms(decay_function="gaussian", gaussian_sigma=4.0, score_threshold=0.2)
    decayed = rows.copy()
    decayed[1, 1] = 0.6 * np.exp(-4 / 9)
    yield Case("gaussian", gaussian, (_BOXES, _SCORES), (decayed, places, count))


def multiclass_nms(rng: np.random.Generator) -> Iterator[Case]:
    """The second box goes, or stays with a higher threshold; pictures with boxes of their own."""
    rows = np.array([[0, 0.9, 0, 0, 1, 1], [0, 0.6, 0, 0.5, 1, 1.5], [0, 0.3, 4, 4, 5, 5]], np.float32)
    places = np.array([[0], [1], [2]])
    without = (rows[[0, 2]], places[[0, 2]], np.array([2]))
    yield Case("suppressed", MulticlassNms(iou_threshold=0.3), (_BOXES, _SCORES, None), without)
    yield Case("all", MulticlassNms(iou_threshold=0.5), (_BOXES, _SCORES, None), (rows, places, np.array([3])))
    given = (_BOXES, _SCORES[0], np.array([1, 2]))
    apart = (rows, places, np.array([1, 2]))
    yield Case("pictures", MulticlassNms(iou_threshold=0.3), given, apart)


def nms_rotated(rng: np.random.Generator) -> Iterator[Case]:
    """A square, the same turned by an eighth (they share 2 (sqrt(2) - 1) of their area), and one apart."""
    boxes = np.array([[[0, 0, 1, 1, 0], [0, 0, 1, 1, np.pi / 4], [9, 9, 1, 1, 0]]], np.float32)
    most, least = np.array(5), np.array(0, np.float32)
    shared = 2 * (np.sqrt(2) - 1)
    overlap = shared / (2 - shared)
    for name, limit, kept in (("suppressed", overlap - 0.01, [0, 2]), ("all", overlap + 0.01, [0, 1, 2])):
        found = np.array([[0, 0, place] for place in kept])
        scores = np.array([[0, 0, _SCORES[0, 0, place]] for place in kept], np.float32)
        given = (boxes, _SCORES, most, np.array(limit, np.float32), least)
        yield Case(name, NMSRotated(), given, (found, scores, np.array([len(kept)])))


def roi_align_rotated(rng: np.random.Generator) -> Iterator[Case]:
    """A picture that rises to the right: the cells of a region, and of one turned by a quarter."""
    ramp = np.broadcast_to(np.arange(9, dtype=np.float32), (1, 1, 9, 9)).copy()
    rois = np.array([[4.5, 4.5, 4, 4, 0], [4.5, 4.5, 4, 4, np.pi / 2]], np.float32)
    op = ROIAlignRotated(pooled_h=2, pooled_w=2, sampling_ratio=2, spatial_scale=1.0, clockwise_mode=True)
    want = np.array([[[3, 5], [3, 5]], [[5, 5], [3, 3]]], np.float32)[:, None]
    yield Case("ramp", op, (ramp, rois, np.array([0, 0])), (want,), atol=1e-5)


def generate_proposals(rng: np.random.Generator) -> Iterator[Case]:
    """Two anchors apart and one that is too small; of the same in a fixed number of rows."""
    anchors = np.array([[[[0, 0, 4, 4], [8, 8, 14, 14], [1, 1, 2, 2]]]], np.float32)
    deltas, scores = np.zeros((1, 12, 1, 1), np.float32), np.array([0.2, 0.7, 0.9], np.float32).reshape(1, 3, 1, 1)
    info = np.array([[16, 16, 1]], np.float32)
    rois = np.array([[8, 8, 14, 14], [0, 0, 4, 4]], np.float32)
    op = GenerateProposals(min_size=2.0, nms_threshold=0.5, pre_nms_count=9, post_nms_count=3)
    want = (rois, np.array([0.7, 0.2], np.float32), np.array([2]))
    yield Case("two", op, (info, anchors, deltas, scores), want)
    full = (np.concatenate([rois, np.zeros((1, 4), np.float32)]), np.array([0.7, 0.2, 0], np.float32), np.array([3]))
    yield Case("padded", dataclasses.replace(op, padded=True), (info, anchors, deltas, scores), full)
    yield Case(
        "first",
        dataclasses.replace(op, pre_nms_count=2),
        (info, anchors, deltas, scores),
        (rois[:1], want[1][:1], np.array([1])),
    )


def detectron_detection_output(rng: np.random.Generator) -> Iterator[Case]:
    """Boxes that are not moved, of the second class; the first one is the background."""
    rois = np.array([[0, 0, 9, 9], [0, 0, 9, 8], [20, 20, 29, 29]], np.float32)
    scores = np.array([[0.9, 0.4], [0.1, 0.8], [0.3, 0.05]], np.float32)
    op = DetectronDetectionOutput(
        score_threshold=0.1,
        nms_threshold=0.5,
        num_classes=2,
        post_nms_count=5,
        max_detections_per_image=2,
        max_delta_log_wh=4.0,
        deltas_weights=(1.0, 1.0, 1.0, 1.0),
    )
    boxes = np.array([[0, 0, 9, 8], [0, 0, 0, 0]], np.float32)
    want = (boxes, np.array([1, 0], np.int32), np.array([0.8, 0], np.float32))
    yield Case("one", op, (rois, np.zeros((3, 8), np.float32), scores, np.array([[40, 40, 1]], np.float32)), want)


def detectron_roi_feature_extractor(rng: np.random.Generator) -> Iterator[Case]:
    """Levels of one number each: a small region is of the first, a large one of the second, one without area of none."""
    features = tuple(np.full((1, 2, size, size), level, np.float32) for level, size in ((1, 64), (2, 32)))
    rois = np.array([[0, 0, 60, 60], [0, 0, 200, 200], [5, 5, 5, 9]], np.float32)
    op = DetectronROIFeatureExtractor(output_size=3, sampling_ratio=2, pyramid_scales=(4, 8))
    want = np.broadcast_to(np.array([1, 2, 0], np.float32)[:, None, None, None], (3, 2, 3, 3)).copy()
    yield Case("levels", op, (rois, *features), (want,))
