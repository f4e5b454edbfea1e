"""Suppression of overlapping boxes, class by class: by decaying scores, and by a threshold that may adapt."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["MatrixNms", "MulticlassNms"]

Array = NDArray[Any]

_ORDERS = ("none", "score", "classid")


@dataclass(frozen=True)
class _Boxes:
    """The boxes of a class in a picture: corners [n, 4], scores [n], and the numbers by which results name them."""

    corners: Array
    scores: Array
    numbers: Array


class _ClassNms(Operator):
    """Rows [n, 6] of class, score and corners, the number of each row's box [n, 1], and how many rows pictures have [N]."""

    domain: ClassVar[str] = "openvino"
    outputs = ("selected_outputs: T", "selected_indices: int64", "selected_num: int64")
    types = {"T": frozenset({DType.FLOAT32})}

    sort_result_type: str = "none"
    sort_result_across_batch: bool = False
    score_threshold: float = 0.0
    nms_top_k: int = -1
    keep_top_k: int = -1
    background_class: int = -1
    normalized: bool = True

    def __post_init__(self) -> None:
        if self.sort_result_type not in _ORDERS:
            raise OperatorError(f"attribute 'sort_result_type' is {self.sort_result_type!r}; accepted: {', '.join(_ORDERS)}")
        for name in ("nms_top_k", "keep_top_k"):
            if getattr(self, name) < -1:
                raise OperatorError(f"attribute '{name}' is {getattr(self, name)}; accepted: -1 (all) or more")

    def _kept(self, boxes: _Boxes) -> tuple[Array, Array]:
        """The places of the boxes that are kept, best first, and their scores."""
        raise NotImplementedError

    def _rows(self, pictures: Iterable[Iterable[_Boxes]]) -> tuple[Array, Array, Array]:
        """The outputs; each picture has boxes for each class."""
        counts: list[int] = []
        found: list[Array] = []  # rows of picture, class, score, number, corners
        for picture, classes in enumerate(pictures):
            rows = [self._of_class(picture, kind, boxes) for kind, boxes in enumerate(classes) if kind != self.background_class]
            own = np.concatenate([np.empty((0, 8)), *rows])
            own = own[np.lexsort((own[:, 3], own[:, 1], -own[:, 2]))]
            found.append(own[: self.keep_top_k] if self.keep_top_k >= 0 else own)
            counts.append(len(found[-1]))
        table = np.concatenate([np.empty((0, 8)), *found])
        table = table[self._order(table)]
        selected = table[:, [1, 2, 4, 5, 6, 7]].astype(np.float32)
        return selected, table[:, 3:4].astype(np.int64), np.array(counts, np.int64)

    def _of_class(self, picture: int, kind: int, boxes: _Boxes) -> Array:
        places, scores = self._kept(boxes)
        front = np.empty((len(places), 4))
        front[:, 0], front[:, 1], front[:, 2], front[:, 3] = picture, kind, scores, boxes.numbers[places]
        return np.concatenate([front, boxes.corners[places]], axis=1)

    def _order(self, table: Array) -> Array:
        picture, kind, score, number = table[:, :4].T
        if self.sort_result_type == "classid":
            first = (kind, picture) if self.sort_result_across_batch else (picture, kind)
            return np.lexsort((number, -score, first[1], first[0]))
        if self.sort_result_type == "score" and self.sort_result_across_batch:
            return np.lexsort((number, kind, picture, -score))
        return np.arange(len(table))

    def _best(self, scores: Array, chosen: Array) -> Array:
        """The places of the chosen scores, best first, as many as are looked at."""
        places = np.flatnonzero(chosen)
        places = places[np.argsort(-scores[places], kind="stable")]
        return places[: self.nms_top_k] if self.nms_top_k >= 0 else places


def _shared(boxes: Array, scores: Array) -> Iterator[Iterator[_Boxes]]:
    """Of boxes [N, M, 4] that all classes share, with scores [N, C, M]."""
    for picture, (corners, own) in enumerate(zip(boxes, scores, strict=True)):
        numbers = picture * boxes.shape[1] + np.arange(boxes.shape[1])
        yield (_Boxes(corners, row, numbers) for row in own)


class MatrixNms(_ClassNms):
    """Boxes of each class with scores that decay by their overlap with better ones, relative to those ones' own overlap.

    `boxes` [N, M, 4] are corners, `scores` [N, C, M]. Equal scores keep the order of the boxes. Within pictures rows are always
    sorted by score, as in OpenVINO: `sort_result_type` only counts with `sort_result_across_batch`.
    """

    inputs = ("boxes: T", "scores: T")
    decay_function: str = "linear"
    gaussian_sigma: float = 2.0
    post_threshold: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decay_function not in ("linear", "gaussian"):
            raise OperatorError(f"attribute 'decay_function' is {self.decay_function!r}; accepted: linear, gaussian")

    def infer(self, boxes: TensorType, scores: TensorType) -> tuple[TensorType, ...]:
        """[n, 6], [n, 1] and [N]; n is known when the data is."""
        return _inferred(boxes, scores)

    def reference(self, boxes: Array, scores: Array) -> tuple[Array, ...]:
        """In float32, class by class."""
        return self._rows(_shared(boxes, scores))

    def _order(self, table: Array) -> Array:
        return super()._order(table) if self.sort_result_across_batch else np.arange(len(table))

    def _kept(self, boxes: _Boxes) -> tuple[Array, Array]:
        order = self._best(boxes.scores, boxes.scores > np.float32(self.score_threshold))
        overlap = np.tril(_overlaps(boxes.corners[order], self.normalized), -1)  # [n, n]: with better ones
        most = overlap.max(1, initial=0)
        with np.errstate(all="ignore"):
            if self.decay_function == "linear":
                decay = ((1.0 - overlap.astype(np.float64)) / (1.0 - most.astype(np.float64) + 1e-10)).astype(np.float32)
            else:
                decay = np.exp((most * most - overlap * overlap) * np.float32(self.gaussian_sigma))
        decay[np.triu_indices(len(order))] = 1
        scores = decay.min(1, initial=1) * boxes.scores[order]
        kept = scores > self.post_threshold
        return order[kept], scores[kept]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Boxes whose overlaps are known."""
        from dovetail_frontend_openvino.operators.detector_cases import matrix_nms  # here, because only tests need cases

        return matrix_nms(rng)


class MulticlassNms(_ClassNms):
    """Boxes of each class, best first, without those that overlap one before them by `iou_threshold` or more.

    `boxes` [N, M, 4] are corners and `scores` [N, C, M]; or, with `roisnum` [N], which says how many of them each picture has,
    [C, M, 4] and [C, M]. `nms_eta` below 1 multiplies the threshold after each box that is kept, down to 0.5.
    """

    inputs = ("boxes: T", "scores: T", "roisnum?: int64")
    iou_threshold: float = 0.0
    nms_eta: float = 1.0

    def infer(self, boxes: TensorType, scores: TensorType, roisnum: TensorType | None) -> tuple[TensorType, ...]:
        """[n, 6], [n, 1] and [N]; n is known when the data is."""
        if scores.rank != 2:
            return _inferred(boxes, scores)
        if boxes.rank != 3 or boxes.dims != (*scores.dims, 4) or roisnum is None or roisnum.rank != 1:
            shown = f"'boxes' is {boxes}, 'scores' {scores}, 'roisnum' {roisnum}"
            raise ShapeError(f"{shown}; accepted: [C, M, 4], [C, M], [N]")
        return _outputs(boxes, roisnum.dims[0])

    def reference(self, boxes: Array, scores: Array, roisnum: Array | None) -> tuple[Array, ...]:
        """In float32, class by class. Raises `OperatorError` for numbers of boxes that are not there."""
        if scores.ndim == 3 or roisnum is None:
            return self._rows(_shared(boxes, scores))
        if roisnum.min(initial=0) < 0 or roisnum.sum() > scores.shape[1]:
            raise OperatorError(f"input 'roisnum' is {roisnum}; accepted: numbers from 0 on, {scores.shape[1]} in all")
        return self._rows(_apart(boxes, scores, roisnum))

    def _kept(self, boxes: _Boxes) -> tuple[Array, Array]:
        order = self._best(boxes.scores, boxes.scores >= np.float32(self.score_threshold))
        corners, limit = boxes.corners[order], np.float32(self.iou_threshold)
        adapts = 0 <= self.nms_eta < 1
        most, chosen, place = np.full(len(order), -1, np.float32), list[int](), 0
        while (free := np.flatnonzero(most[place:] < limit if chosen else most[place:] < 0)).size:
            place += int(free[0])
            chosen.append(place)
            most = np.fmax(most, _overlap(corners[place], corners, self.normalized))
            limit = np.float32(limit * self.nms_eta) if adapts and limit > 0.5 else limit
            place += 1
        kept = order[chosen]
        return kept, boxes.scores[kept]

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Boxes whose overlaps are known."""
        from dovetail_frontend_openvino.operators.detector_cases import multiclass_nms  # here, because only tests need cases

        return multiclass_nms(rng)


def _apart(boxes: Array, scores: Array, counts: Array) -> Iterator[Iterator[_Boxes]]:
    """Of boxes [C, M, 4] and scores [C, M], whose second axis has those of one picture after the other."""
    ends = np.cumsum(counts)
    for first, end in zip(ends - counts, ends, strict=True):
        places = np.arange(first, end)
        yield (
            _Boxes(corners[first:end], own[first:end], places * len(scores) + kind)
            for kind, (corners, own) in enumerate(zip(boxes, scores, strict=True))
        )


def _inferred(boxes: TensorType, scores: TensorType) -> tuple[TensorType, ...]:
    fits = boxes.rank == scores.rank == 3 and boxes.dims[2] == 4
    if not fits or (boxes.dims[0], boxes.dims[1]) != (scores.dims[0], scores.dims[2]):
        raise ShapeError(f"input 'boxes' is {boxes}, 'scores' {scores}; accepted: [N, M, 4] and [N, C, M]")
    return _outputs(boxes, boxes.dims[0])


def _outputs(boxes: TensorType, pictures: int) -> tuple[TensorType, ...]:
    whole = TensorType(DType.INT64, (None, 1))
    return TensorType(boxes.dtype, (None, 6)), whole, TensorType(DType.INT64, (pictures,))


def _overlap(box: Array, others: Array, normalized: bool) -> Array:
    """Intersection over union [n] of a box with others [n, 4]; 0 where one of the two is empty."""
    pixel = np.float32(not normalized)
    with np.errstate(all="ignore"):
        sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2]) + pixel
        shared = np.maximum(sides, 0).prod(1)
        area, areas = (box[2:] - box[:2] + pixel).prod(), (others[:, 2:] - others[:, :2] + pixel).prod(1)
        return np.where((area > 0) & (areas > 0), shared / (area + areas - shared), np.float32(0))


def _overlaps(boxes: Array, normalized: bool) -> Array:
    """Intersection over union [n, n]; 0 for boxes apart, and a box with its corners exchanged has no area."""
    pixel = np.float32(not normalized)
    low, high = boxes[:, :2], boxes[:, 2:]
    with np.errstate(all="ignore"):
        areas = np.where((high >= low).all(1), (high - low + pixel).prod(1), np.float32(0))
        apart = ((low[:, None] > high) | (high[:, None] < low)).any(2)
        sides = np.minimum(high[:, None], high) - np.maximum(low[:, None], low) + pixel
        shared = sides.prod(2)
        return np.where(apart, np.float32(0), shared / (areas[:, None] + areas - shared))
