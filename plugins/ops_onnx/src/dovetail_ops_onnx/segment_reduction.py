"""Sums and means of segments of rows, as PyTorch's EmbeddingBag. A pass has it; it is not in the standard."""

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
    """Y[k] is the sum, or mean, of the rows of W with the numbers indices[starts[k]:ends[k]], for k below M.

    Starts and ends are clamped as those of Slice. The sum of no rows is 0, their mean NaN.
    """

    domain: ClassVar[str] = "dovetail"
    op_type: ClassVar[str] = "SegmentReduction"
    stem: ClassVar[str] = "segment_reduction"
    inputs: ClassVar[tuple[Port, ...]] = (Port("W"), Port("indices"), Port("starts"), Port("ends"), Port("M"))
    attributes: ClassVar[Mapping[str, Any]] = MappingProxyType(dict.fromkeys(("mean",)))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)

    mean: bool = False

    def infer(self, w: TensorType, indices: TensorType, starts: TensorType, ends: TensorType, m: TensorType) -> TensorType:
        """[M, elements of a row]. Raises `DataDependentShape` where M is not known."""
        if w.rank < 1 or any(t.rank != 1 for t in (indices, starts, ends)):
            raise OperatorError(f"the inputs are {w}, {indices}, {starts}, {ends}; accepted: rows, and three vectors")
        (count,) = known_ints(m, "M")
        for name, one in (("starts", starts), ("ends", ends)):
            if one.dims[0] < count:
                raise OperatorError(f"there are {one.dims[0]} {name}; accepted: {count} or more, one for each iteration")
        return w.with_shape((max(0, count), *w.dims[1:]))

    def reference(self, w: Array, indices: Array, starts: Array, ends: Array, m: Array) -> Array:
        """In blocks of segments; rows are added in their order, in the type of W."""
        count, total = max(0, int(m.reshape(()))), len(indices)
        first, last = (np.clip(np.where(a < 0, a + total, a), 0, total).astype(np.int64) for a in (starts[:count], ends[:count]))
        lengths = np.maximum(last - first, 0)
        y = np.zeros((count, *w.shape[1:]), w.dtype)
        for begin, end in _blocks(lengths, max(1, _BLOCK // max(1, w[:1].size))):
            own = lengths[begin:end]
            before = np.cumsum(own) - own
            places = np.arange(own.sum()) + np.repeat(first[begin:end] - before, own)
            numbers = indices.take(places)
            check_indices(numbers, len(w), 0)
            held = own > 0  # `reduceat` gives a row for an empty segment
            if held.any():
                y[begin:end][held] = np.add.reduceat(w.take(numbers, axis=0, mode="wrap"), before[held], axis=0, dtype=w.dtype)
        if self.mean:
            with np.errstate(all="ignore"):
                y /= lengths.reshape(-1, *[1] * (w.ndim - 1)).astype(w.dtype)
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
