"""Sums, means and maxima of segments of rows, as PyTorch's EmbeddingBag. A pass has it; it is not in the standard."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import AbstractOperator, OperatorError, Port, TensorType
from dovetail_ops_onnx._shapes import check_indices, known_ints

__all__ = ["SegmentReduction"]

Array = NDArray[Any]

_BLOCK = 1 << 17
"""Elements of rows that are taken at once: they fit the cache."""


@dataclass(frozen=True, eq=False)
class SegmentReduction(AbstractOperator):
    """Y[k] is the sum, mean or max of the rows of W with the numbers indices[starts[k]:ends[k]], for k below M.

    Without indices it is that of the rows W[starts[k]:ends[k]]. Starts and ends are clamped as those of Slice. A mean is the sum
    divided by the number of rows, but at least by `least`: that of no rows is NaN with 0, and 0 with 1. The maximum of no rows
    is -inf with `least` 0, and 0 with 1; their sum is 0.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "SegmentReduction"
    stem: ClassVar[str] = "segment_reduction"
    inputs: ClassVar[tuple[Port, ...]] = (Port("W"), Port("indices", optional=True), Port("starts"), Port("ends"), Port("M"))
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(("how", "least")))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    how: str = "sum"
    least: int = 0

    def infer(self, w: TensorType, indices: TensorType | None, starts: TensorType, ends: TensorType, m: TensorType) -> TensorType:
        """[M, elements of a row]. Raises `DataDependentShape` where M is not known."""
        if w.rank < 1 or any(t is not None and t.rank != 1 for t in (indices, starts, ends)):
            raise OperatorError(f"the inputs are {w}, {indices}, {starts}, {ends}; accepted: rows, and three vectors")
        (count,) = known_ints(m, "M")
        for name, one in (("starts", starts), ("ends", ends)):
            if one.dims[0] < count:
                raise OperatorError(f"there are {one.dims[0]} {name}; accepted: {count} or more, one for each iteration")
        return w.with_shape((max(0, count), *w.dims[1:]))

    def reference(self, w: Array, indices: Array | None, starts: Array, ends: Array, m: Array) -> Array:
        """In blocks of segments; rows are added in their order, in the type of W."""
        count, total = max(0, int(m.reshape(()))), len(w if indices is None else indices)
        first, last = (np.clip(np.where(a < 0, a + total, a), 0, total).astype(np.int64) for a in (starts[:count], ends[:count]))
        lengths = np.maximum(last - first, 0)
        nothing = -np.inf if self.how == "max" and not self.least else 0
        y = np.full((count, *w.shape[1:]), nothing, w.dtype)
        for begin, end in _blocks(lengths, max(1, _BLOCK // max(1, w[:1].size))):
            own = lengths[begin:end]
            before = np.cumsum(own) - own
            places = np.arange(own.sum()) + np.repeat(first[begin:end] - before, own)
            numbers = places if indices is None else indices.take(places)
            check_indices(numbers, len(w), 0)
            held = own > 0  # `reduceat` gives a row for an empty segment
            if held.any():
                reduce = np.maximum if self.how == "max" else np.add
                y[begin:end][held] = reduce.reduceat(w.take(numbers, axis=0, mode="wrap"), before[held], axis=0, dtype=w.dtype)
        if self.how == "mean":
            with np.errstate(all="ignore"):
                y /= np.maximum(lengths, self.least).reshape(-1, *[1] * (w.ndim - 1)).astype(w.dtype)
        return y


def _blocks(lengths: Array, most: int) -> Iterator[tuple[int, int]]:
    """Ranges of segments that have about so many rows together."""
    ends = np.cumsum(lengths)
    begin = 0
    while begin < len(lengths):
        start = int(ends[begin] - lengths[begin])
        end = max(begin + 1, int(np.searchsorted(ends, start + most, side="right")))
        yield begin, end
        begin = end
