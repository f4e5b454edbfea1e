"""NonMaxSuppression in blocks of boxes: the same selections as box by box."""

from typing import Any

import numpy as np
import pytest

from dovetail_ops_onnx import _boxes
from dovetail_ops_onnx.non_max_suppression import NonMaxSuppression

F = np.float32


def _box_by_box(boxes: Any, scores: Any, most: int, iou: float, least: float | None) -> list[tuple[int, int, int]]:
    """In float32, number by number. Boxes are [y1, x1, y2, x2] with y1 <= y2, x1 <= x2."""
    found = []
    for n, kind in np.ndindex(scores.shape[:2]):
        taken: list[int] = []
        row = scores[n, kind]
        numbers = [b for b in range(len(row)) if row[b] == row[b]]
        order = sorted(numbers, key=lambda b: -row[b]) + [b for b in range(len(row)) if row[b] != row[b]]
        for box in order:
            good = least is None or row[box] > F(least)
            if good and len(taken) < most and not any(_overlap(boxes[n, t], boxes[n, box], F(iou)) for t in taken):
                taken.append(box)
        found += [(n, kind, box) for box in taken]
    return found


def _overlap(a: Any, b: Any, iou: Any) -> bool:
    height = max(min(a[2], b[2]) - max(a[0], b[0]), F(0))
    width = max(min(a[3], b[3]) - max(a[1], b[1]), F(0))
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    shared = height * width
    return bool(min(areas) > 0 and shared > iou * (areas[0] + areas[1] - shared))


def _random_boxes(rng: np.random.Generator, batch: int, count: int, size: int) -> Any:
    """Whole numbers, so that many overlap by exactly a threshold."""
    low = rng.integers(0, 12, (batch, count, 2))
    return np.concatenate((low, low + rng.integers(0, size, (batch, count, 2))), 2).astype(F)


@pytest.mark.parametrize(("side", "long"), [(1, 192), (1, 0), (8, 192), (8, 40), (192, 192), (192, 0)])
@pytest.mark.parametrize(
    ("shape", "size", "most", "iou", "least"),
    [
        ((2, 1, 150), 7, 100, 0.5, None),  # many rounds of one row
        ((1, 1, 150), 3, 40, 0.0, 0.2),  # the limit is reached in a later round
        ((1, 1, 150), 7, 20, 0.5, None),  # the boxes with the highest scores are enough
        ((1, 1, 150), 9, 25, 0.0, 0.1),  # they are not
        ((2, 5, 70), 9, 10, 0.25, 0.6),  # rows of different lengths
        ((2, 9, 30), 5, 1000, 0.75, 0.97),  # rows without candidates
        ((1, 3, 40), 1, 1000, 0.3, None),  # boxes without area
        ((2, 2, 50), 7, 50, 1.0, 0.0),
        ((2, 20, 50), 7, 9, 0.5, 0.4),  # pairs that are compared once for many classes
        ((1, 20, 60), 7, 100, 0.0, None),
    ],
)
def test_rounds(
    rng: np.random.Generator,
    monkeypatch: pytest.MonkeyPatch,
    side: int,
    long: int,
    shape: tuple[int, int, int],
    size: int,
    most: int,
    iou: float,
    least: float | None,
) -> None:
    monkeypatch.setattr(_boxes, "_SIDE", side)
    monkeypatch.setattr(_boxes, "_LEAST_SIDE", min(side, 8))
    monkeypatch.setattr(_boxes, "_BLOCK", side)
    monkeypatch.setattr(_boxes, "_LONG", long)
    for _ in range(2):
        boxes = _random_boxes(rng, shape[0], shape[2], size)
        scores = np.round(rng.random(shape), 2).astype(F)  # some are equal
        scores[rng.random(scores.shape) < 0.05] = np.nan
        boxes.flags.writeable = scores.flags.writeable = False
        floor = () if least is None else (F([least]),)
        got = NonMaxSuppression().reference(boxes, scores, np.array([most]), F([iou]), *floor)
        assert got.dtype == np.int64
        assert [tuple(row) for row in got.tolist()] == _box_by_box(boxes, scores, most, iou, least)


@pytest.mark.parametrize("shape", [(0, 2, 5), (2, 0, 5), (2, 3, 0), (2, 3, 5)])
def test_nothing(rng: np.random.Generator, shape: tuple[int, int, int]) -> None:
    boxes = _random_boxes(rng, shape[0], shape[2], 4)
    got = NonMaxSuppression().reference(boxes, rng.random(shape).astype(F), np.array([5]), F([0.5]), F([2.0]))
    assert got.shape == (0, 3)


@pytest.mark.parametrize("odd", [None, np.nan, np.inf, -np.inf])
@pytest.mark.parametrize(("most", "iou"), [(1000, 0.3), (20, 0.0), (20, 0.5)])
def test_classes_in_columns_of_their_own(
    rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch, odd: float | None, most: int, iou: float
) -> None:
    """Boxes whose columns are shifted by their class, in any order, some of which touch the next column."""
    for name in ("_SIDE", "_BLOCK", "_LONG"):
        monkeypatch.setattr(_boxes, name, 8)
    boxes = _random_boxes(rng, 1, 120, 6)
    boxes[..., 1::2] += rng.integers(0, 4, (1, 120, 1)) * F(16)
    if odd is not None:
        boxes[0, 7, 3 if odd > 0 else 1] = odd
    scores = np.round(rng.random((1, 1, 120)), 2).astype(F)
    got = NonMaxSuppression().reference(boxes, scores, np.array([most]), F([iou]))
    assert [tuple(row) for row in got.tolist()] == _box_by_box(boxes, scores, most, iou, None)


def test_sizes_below_zero(rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such boxes hide no others, and none hides them, as in onnxruntime and ONNX's reference."""
    monkeypatch.setattr(_boxes, "_SIDE", 8)
    centres = np.concatenate((rng.integers(0, 20, (1, 50, 2)), rng.integers(1, 5, (1, 50, 2)) * 2), 2).astype(F)
    centres[0, ::9, 2] *= -4
    centres[0, ::12, 3] *= -1
    x, y, width, height = np.moveaxis(centres, 2, 0)
    boxes = np.stack((y - height / 2, x - width / 2, y + height / 2, x + width / 2), 2)
    scores = rng.random((1, 1, 50)).astype(F)
    got = NonMaxSuppression(center_point_box=1).reference(centres, scores, np.array([50]), F([0.5]))
    expected = _box_by_box(boxes, scores, 50, 0.5, None)
    assert {(0, 0, place) for place in (*range(0, 50, 9), *range(0, 50, 12))} <= {*expected}
    assert len(expected) < 50
    assert [tuple(row) for row in got.tolist()] == expected
