"""DetectionPostProcess against a search in float64 that is written differently. TFLite's golden numbers are among its cases."""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.device import REFERENCE_KERNEL
from dovetail.errors import OperatorError
from dovetail_ops_tim_vx.cases.detection_post_process import ANCHORS, ATTRIBUTES, ENCODINGS, FOURTH, SCORES, SIXTH, make
from dovetail_ops_tim_vx.detection_post_process import DetectionPostProcess

pytestmark = pytest.mark.exhaustive(0.15, device="OPENCL")  # compiles programs

Array = NDArray[Any]


def overlap(a: Array, b: Array) -> float:
    """Intersection over union of two boxes; 0 when one has no area."""
    if min(a[2] - a[0], a[3] - a[1], b[2] - b[0], b[3] - b[1]) <= 0:
        return 0.0
    shared = max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    return float(shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared))


def survivors(op: DetectionPostProcess, boxes: Array, scores: Array, limit: int) -> list[int]:
    """By candidates in order: one stays when no box that stayed overlaps it too much."""
    kept: list[int] = []
    for i in sorted(range(len(scores)), key=lambda i: (-scores[i], i)):
        fits = all(overlap(boxes[i], boxes[j]) <= op.nms_iou_threshold for j in kept)
        if scores[i] >= op.nms_score_threshold and fits and len(kept) < limit:
            kept.append(i)
    return kept


def expected(op: DetectionPostProcess, encodings: Array, scores: Array, anchors: Array) -> tuple[Array, ...]:
    """The outputs in float64."""
    batch, slots = len(encodings), op.max_detections * op.max_classes_per_detection
    boxes_out, classes_out, scores_out, num = np.zeros((batch, slots, 4)), np.zeros((batch, slots)), np.zeros((batch, slots)), []
    for image in range(batch):
        boxes = np.zeros((len(anchors), 4))
        for i, ((y, x, h, w), (ay, ax, ah, aw)) in enumerate(
            zip(encodings[image, :, :4].tolist(), anchors.tolist(), strict=True)
        ):
            cy, cx = y / op.y_scale * ah + ay, x / op.x_scale * aw + ax
            height, width = math.exp(h / op.h_scale) * ah, math.exp(w / op.w_scale) * aw
            boxes[i] = [cy - height / 2, cx - width / 2, cy + height / 2, cx + width / 2]
        own = scores[image, :, scores.shape[2] - op.num_classes :].astype(np.float64)
        found: list[tuple[int, int, int]] = []  # slot, box, class
        if op.use_regular_nms:
            every = [(i, c) for c in range(op.num_classes) for i in survivors(op, boxes, own[:, c], op.detections_per_class)]
            every.sort(key=lambda at: -own[at])
            found = [(slot, *at) for slot, at in enumerate(every[: op.max_detections])]
            num.append(len(found))
        else:
            kept = survivors(op, boxes, [max(row) for row in own], op.max_detections)
            for place, i in enumerate(kept):
                best = sorted(range(op.num_classes), key=lambda c: (-own[i, c], c))[: op.max_classes_per_detection]
                found += [(place * op.max_classes_per_detection + each, i, c) for each, c in enumerate(best)]
            num.append(len(kept))
        for slot, i, c in found:
            boxes_out[image, slot], classes_out[image, slot], scores_out[image, slot] = boxes[i], c, own[i, c]
    return boxes_out, classes_out, scores_out, np.array(num, np.float64)


def check(given: tuple[Array, ...], wanted: tuple[Any, ...]) -> None:
    for got, want in zip(given, wanted, strict=True):
        np.testing.assert_allclose(got, np.asarray(want), rtol=1e-5, atol=1e-5)


def drawn(rng: np.random.Generator, batch: int, boxes: int, columns: int, code: int = 4) -> tuple[Array, ...]:
    """Boxes that crowd a small field, with all scores distinct."""
    anchors = np.concatenate([rng.uniform(0, 3, (boxes, 2)), rng.uniform(0.5, 1.5, (boxes, 2))], axis=1)
    scores = rng.permutation(batch * boxes * columns).reshape(batch, boxes, columns) / (batch * boxes * columns)
    encodings = rng.standard_normal((batch, boxes, code))
    return tuple(a.astype(np.float32) for a in (encodings, scores, anchors))


@pytest.mark.parametrize("background", [0, 1])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"max_detections": 40, "max_classes_per_detection": 3},
        {"max_classes_per_detection": 7},
        {"nms_score_threshold": 0.8, "max_detections": 30},
        {"nms_score_threshold": 2.0},
        {"nms_iou_threshold": 1.0, "max_detections": 100},
        {"nms_iou_threshold": 0.05, "max_detections": 100},
        {"use_regular_nms": True},
        {"use_regular_nms": True, "max_detections": 17, "detections_per_class": 3},
        {"use_regular_nms": True, "max_detections": 200, "nms_iou_threshold": 0.3, "max_classes_per_detection": 2},
        {"use_regular_nms": True, "nms_score_threshold": 0.95},
    ],
    ids=str,
)
def test_random_boxes(device: str, execute: Any, rng: np.random.Generator, changes: dict[str, Any], background: int) -> None:
    op = make(num_classes=5, **{"max_detections": 10, **changes})
    arrays = drawn(rng, 2, 83, 5 + background, 4 + background)
    check(execute(op, arrays, device, outputs=4).outputs, expected(op, *arrays))


@pytest.mark.parametrize("regular", [False, True])
def test_of_equal_scores_the_lower_box_and_class_count(device: str, execute: Any, regular: bool) -> None:
    apart = np.float32([[0.5, 10 * i, 1, 1] for i in range(70)])
    op = make(max_detections=5, num_classes=3, max_classes_per_detection=2, use_regular_nms=regular)
    arrays = np.zeros((1, 70, 4), np.float32), np.full((1, 70, 3), 0.5, np.float32), apart
    boxes, classes, scores, num = execute(op, arrays, device, outputs=4).outputs
    check((boxes, classes, scores, num), expected(op, *arrays))
    first = boxes[0, :, 1] + 0.5
    np.testing.assert_allclose(first[:4], [0, 10, 20, 30] if regular else [0, 0, 10, 10], atol=1e-5)


def test_nan_is_the_lowest_score(device: str, execute: Any) -> None:
    scores = SCORES.copy()
    scores[0, 3, 2] = scores[0, 0] = np.nan
    outputs = execute(make(), (ENCODINGS, scores, ANCHORS), device, outputs=4).outputs
    second = [0, 0.1, 1, 1.1]
    check(outputs, ([[FOURTH, second, SIXTH]], [[0, 0, 0]], [[0.93, 0.75, 0.3]], [3]))


@pytest.mark.parametrize(("batch", "boxes"), [(0, 4), (2, 0), (3, 1)])
def test_few_boxes_and_batch_0(device: str, execute: Any, rng: np.random.Generator, batch: int, boxes: int) -> None:
    op, arrays = make(), drawn(rng, batch, boxes, 2)
    check(execute(op, arrays, device, outputs=4).outputs, expected(op, *arrays))


def test_float64_runs_by_the_reference(device: str, execute: Any, rng: np.random.Generator) -> None:
    op = make(num_classes=3)
    arrays = tuple(a.astype(np.float64) for a in drawn(rng, 1, 20, 3))
    outputs = execute(op, arrays, device, outputs=4).outputs
    assert all(a.dtype == np.float64 for a in outputs)
    check(outputs, expected(op, *arrays))


def test_the_opencl_device_runs_the_packs_own_kernel(execute: Any) -> None:
    (node,) = execute(make(), (ENCODINGS, SCORES, ANCHORS), "OPENCL", outputs=4).report.nodes
    assert node.device.startswith("OPENCL")
    assert node.kernel != REFERENCE_KERNEL


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"max_detections": 0}, "'max_detections' is 0; accepted: 1 or more"),
        ({"detections_per_class": -1}, "'detections_per_class' is -1"),
        ({"nms_iou_threshold": 0.0}, "'nms_iou_threshold' is 0.0; accepted: above 0, up to 1"),
        ({"nms_iou_threshold": 1.5}, "'nms_iou_threshold' is 1.5"),
        ({"h_scale": 0.0}, "'h_scale' is 0.0; accepted: any number but 0"),
        ({"w_scale": math.inf}, "'w_scale' is inf"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        DetectionPostProcess.from_attributes(ATTRIBUTES | attributes)


def test_scales_are_required() -> None:
    with pytest.raises(OperatorError, match="'y_scale' is missing"):
        DetectionPostProcess.from_attributes({name: value for name, value in ATTRIBUTES.items() if name != "y_scale"})


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (((1, 6, 3), (1, 6, 3), (6, 4)), r"'box_encodings' is float32\[1, 6, 3\]; accepted: \[batch, boxes, 4 or more\]"),
        (((6, 4), (1, 6, 3), (6, 4)), "accepted: .batch, boxes, 4 or more"),
        (((1, 6, 4), (1, 6, 4), (6, 4)), "accepted: 2 classes"),
        (((1, 6, 4), (1, 5, 3), (6, 4)), r"accepted: shape \[1, 6, 3\]"),
        (((1, 6, 4), (1, 6, 3), (5, 4)), r"'anchors' is float32\[5, 4\]; accepted: shape \[6, 4\]"),
    ],
)
def test_inputs_that_do_not_fit(execute: Any, shapes: tuple[tuple[int, ...], ...], message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        execute(make(), [np.zeros(shape, np.float32) for shape in shapes], outputs=4)
