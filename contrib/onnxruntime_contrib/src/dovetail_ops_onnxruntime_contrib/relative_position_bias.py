"""RelativePositionBias of ONNX Runtime: the biases of T5's attention, as its optimizer fuses them."""

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import DataDependentShape
from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node, reshape

__all__ = ["RelativePositionBias"]


class RelativePositionBias(MicrosoftOperator):
    """The bias of each head for the distance of each query and key, by buckets: [1, heads, query_length, key_length].

    `bias_table` has the shape [buckets, heads], but its content in the order of [heads, buckets]. One half of the buckets has a
    distance each, the other has logarithms up to `max_distance`; with `is_bidirectional` the first half of all is for keys that
    are not behind the query (Raffel et al., 2020). Both lengths must be known while planning.
    """

    inputs = ("bias_table: T", "query_length: U", "key_length: U")
    outputs = ("output: T",)
    types = {"T": frozenset({DType.FLOAT32, DType.FLOAT16}), "U": frozenset({DType.INT64})}
    max_distance: int
    is_bidirectional: bool = False

    def __post_init__(self) -> None:
        if self.max_distance < 1:
            raise OperatorError(f"attribute 'max_distance' is {self.max_distance}; accepted: 1 or more")

    def infer(self, bias_table: TensorType, query_length: TensorType, key_length: TensorType) -> TensorType:
        """[1, heads, query_length, key_length]."""
        halves = 2 if self.is_bidirectional else 1
        sizes = (_length(query_length, "query_length"), _length(key_length, "key_length"))
        exact = bias_table.dims[0] // halves // 2 if bias_table.rank == 2 else 0
        if not 0 < exact < self.max_distance or min(sizes) < 0:
            accepted = f"[buckets, heads] with {2 * halves} buckets or more, half of them below 'max_distance', lengths from 0"
            raise ShapeError(f"input 'bias_table' is {bias_table}, the lengths are {list(sizes)}; accepted: {accepted}")
        return bias_table.with_shape((1, bias_table.dims[1], *sizes))

    def compose(self, g: GraphBuilder, bias_table: str, query_length: str, key_length: str) -> str:
        """Gather, by buckets that are known."""
        buckets, heads = g.given(bias_table).dims
        queries, keys = (_length(g.given(name), "a length") for name in (query_length, key_length))
        places = g.constant(self._buckets(queries, keys, buckets), DType.INT64)
        return node(g, Gather(axis=2), reshape(g, bias_table, (1, heads, buckets)), places)

    def _buckets(self, queries: int, keys: int, buckets: int) -> NDArray[np.int64]:
        after = np.arange(keys, dtype=np.int64)[None, :] - np.arange(queries, dtype=np.int64)[:, None]
        first = np.zeros_like(after)
        if self.is_bidirectional:
            buckets //= 2
            first = np.where(after > 0, buckets, 0)
        distance = np.abs(after)
        exact = buckets // 2
        # In float32, as PyTorch and ONNX Runtime compute it: a distance at the border of two buckets belongs where they have it.
        ratio = np.log(np.maximum(distance, 1).astype(np.float32) / np.float32(exact))
        scale = np.log(np.float32(self.max_distance) / np.float32(exact))
        steps = (ratio / scale * np.float32(buckets - exact)).astype(np.int64)
        found: NDArray[np.int64] = first + np.where(distance < exact, distance, np.minimum(exact + steps, buckets - 1))
        return found


def _length(given: TensorType, name: str) -> int:
    if given.value is None:
        raise DataDependentShape(
            f"input {name!r} is {given}, whose content is not known while planning; accepted: a known number"
        )
    if given.size != 1:
        raise ShapeError(f"input {name!r} is {given}; accepted: one number")
    return int(given.value.reshape(()))
