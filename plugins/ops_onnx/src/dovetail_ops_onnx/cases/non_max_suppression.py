"""Cases of NonMaxSuppression: box by box in float64."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dovetail.testing.case import Case
from dovetail_ops_onnx.non_max_suppression import NonMaxSuppression


def cases(rng: np.random.Generator) -> Iterator[Case]:
    """Corners in any order and centres, several classes and batches, thresholds, limits, nothing selected, batch 0."""
    corners = rng.random((2, 30, 4)).astype(np.float32)
    scores = rng.permutation(120).reshape(2, 2, 30).astype(np.float32) / 120
    for name, most, iou, least in (("all", 100, 0.3, None), ("few", 3, 0.1, 0.2), ("none", 0, 0.5, None), ("high", 9, 0.5, 0.97)):
        optional = () if least is None else (np.array([least], np.float32),)
        given = (np.array([most]), np.array([iou], np.float32), *optional)
        for centre in (0, 1):
            want = _by_hand(corners, scores, most, iou, least, centre)
            yield Case(f"{name}_{centre}", NonMaxSuppression(center_point_box=centre), (corners, scores, *given), (want,))
    yield Case("defaults", NonMaxSuppression(), (corners, scores), (np.zeros((0, 3), np.int64),))
    limit = (np.array([5]), np.array([0.5], np.float32))
    yield Case("batch_0", NonMaxSuppression(), (corners[:0], scores[:0], *limit), (np.zeros((0, 3), np.int64),))


def _by_hand(boxes: Any, scores: Any, most: int, iou: float, least: float | None, centre: int) -> Any:
    found = []
    for n, kind in np.ndindex(scores.shape[:2]):
        taken: list[int] = []
        for box in sorted(range(boxes.shape[1]), key=lambda b: -scores[n, kind, b]):
            good = least is None or scores[n, kind, box] > np.float32(least)
            if good and len(taken) < most and all(_iou(boxes[n, box], boxes[n, t], centre) <= np.float32(iou) for t in taken):
                taken.append(box)
        found += [(n, kind, box) for box in taken]
    return np.array(found, np.int64).reshape(-1, 3)


def _iou(a: Any, b: Any, centre: int) -> float:
    def edges(box: Any) -> tuple[float, float, float, float]:
        p, q, r, s = (float(v) for v in box)
        if centre:
            return p - r / 2, q - s / 2, p + r / 2, q + s / 2
        return min(p, r), min(q, s), max(p, r), max(q, s)

    (p, q, r, s), (t, u, v, w) = edges(a), edges(b)
    shared = max(0.0, min(r, v) - max(p, t)) * max(0.0, min(s, w) - max(q, u))
    return shared / ((r - p) * (s - q) + (v - t) * (w - u) - shared)
