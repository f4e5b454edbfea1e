"""Cases of DetectionPostProcess: the data and golden numbers of TFLite's detection_postprocess_test.cc."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing import Case
from dovetail_ops_tim_vx.detection_post_process import DetectionPostProcess

SCALES = {"y_scale": 10.0, "x_scale": 10.0, "h_scale": 5.0, "w_scale": 5.0}
ATTRIBUTES = {"max_detections": 3, "num_classes": 2, "nms_score_threshold": 0.0, "nms_iou_threshold": 0.5, **SCALES}

# Six boxes of size 1, in three groups that overlap.
ENCODINGS = np.zeros((1, 6, 4), np.float32)
ENCODINGS[0, :, 1] = [0, 1, -1, 0, 1, 0]
ANCHORS = np.array([[0.5, x, 1, 1] for x in (0.5, 0.5, 0.5, 10.5, 10.5, 100.5)], np.float32)
SCORES = np.array([[[0, 0.9, 0.8], [0, 0.75, 0.72], [0, 0.6, 0.5], [0, 0.93, 0.95], [0, 0.5, 0.4], [0, 0.3, 0.2]]], np.float32)
FIRST, FOURTH, SIXTH, NONE = [0, 0, 1, 1], [0, 10, 1, 11], [0, 100, 1, 101], [0, 0, 0, 0]


def make(**changes: Any) -> DetectionPostProcess:
    """The operator with TFLite's attributes, but for the changes."""
    return DetectionPostProcess(**{**ATTRIBUTES, **changes})


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Fast and regular suppression, two classes a box, no background, key points, a box without area, two images, batch 0."""
    fast = ([FOURTH, FIRST, SIXTH], [1, 0, 0], [0.95, 0.9, 0.3], 3)
    yield _case("fast", make(), fast)
    doubled = [FOURTH, FOURTH, FIRST, FIRST, SIXTH, SIXTH], [1, 0, 0, 1, 0, 1], [0.95, 0.93, 0.9, 0.8, 0.3, 0.2], 3
    yield _case("two_classes", make(max_classes_per_detection=2), doubled)
    regular = make(use_regular_nms=True, detections_per_class=1)
    yield _case("regular", regular, ([FOURTH, FOURTH, NONE], [1, 0, 0], [0.95, 0.93, 0], 2))
    yield _case("no_background", make(), fast, scores=SCORES[:, :, 1:])
    yield _case("key_points", make(), fast, encodings=np.pad(ENCODINGS, ((0, 0), (0, 0), (0, 2)), constant_values=9))
    flat = np.array([[0.5, 0.5, 1, 1], [0.5, 0.5, 0, 0]], np.float32)
    scores = np.array([[[0, 0.9, 0.8], [0, 0.2, 0.7]]], np.float32)
    found = [FIRST, [0.5] * 4, NONE], [0, 1, 0], [0.9, 0.7, 0], 2
    yield _case("no_area", make(), found, encodings=ENCODINGS[:, :2] * 0, scores=scores, anchors=flat)
    two = np.concatenate([ENCODINGS, ENCODINGS]), np.concatenate([SCORES, SCORES * 0 - 1])
    nothing = [NONE] * 3, [0] * 3, [0] * 3, 0
    yield _case("two_images", make(), fast, nothing, encodings=two[0], scores=two[1])
    empty = tuple(np.zeros(shape, np.float32) for shape in ((0, 3, 4), (0, 3), (0, 3), (0,)))
    yield Case("batch_0", make(), (ENCODINGS[:0], SCORES[:0], ANCHORS), empty)


def _case(
    name: str, op: DetectionPostProcess, *images: Any, encodings: Any = ENCODINGS, scores: Any = SCORES, anchors: Any = ANCHORS
) -> Case:
    expected = tuple(np.array(output, np.float32) for output in zip(*images, strict=True))
    return Case(name, op, (encodings, scores, anchors), expected, atol=1e-5)
