"""DecoderMaskedMultiHeadAttention of ONNX Runtime: attention of one new token, as its converters of T5 and Whisper write it."""

from typing import Any

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cached_attention import CachedAttention
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.tensor_scatter import TensorScatter
from dovetail_ops_onnx.where import Where
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import cut, ints, node, reshape, transpose
from dovetail_ops_onnxruntime_contrib.attention import MultiHeadAttention, attention_mask

__all__ = ["DecoderMaskedMultiHeadAttention"]

_INT32 = frozenset({DType.INT32})


class DecoderMaskedMultiHeadAttention(MicrosoftOperator):
    """Attention of query [batch, 1, hidden] to caches, of which the first `past_sequence_length` keys count, and to itself.

    Or to key and value [batch, heads, length, head size], of which all count. With `past_present_share_buffer` the caches are
    [batch, heads, room, head size]; otherwise they become longer. `mask_index` is [batch, keys] (0: left out), `bias` that of the
    projections. Of beam j, `cache_indirection` [texts, beam_width, room] tells in which beam's cache each of its keys is.
    """

    inputs = (
        "query: T",
        "key?: T",
        "value?: T",
        "mask_index?: M",
        "attention_bias?: T",
        "past_key?: T",
        "past_value?: T",
        "past_sequence_length?: M",
        "beam_width?: M",
        "cache_indirection?: M",
        "bias?: T",
    )
    outputs = ("output: T", "present_key?: T", "present_value?: T", "qk?: T")
    types = {"T": FLOAT_TYPES, "M": _INT32}
    num_heads: int
    mask_filter_value: float = -10000.0
    output_qk: bool = False
    past_present_share_buffer: bool = False
    scale: float = 0.0

    def __post_init__(self) -> None:
        if self.output_qk:
            raise OperatorError("attribute 'output_qk' is set; accepted: 0")

    def _others(self) -> MultiHeadAttention:
        """For caches that become longer, and for all keys of another sequence."""
        return MultiHeadAttention(num_heads=self.num_heads, mask_filter_value=self.mask_filter_value, scale=self.scale)

    def infer(self, query: TensorType, key: TensorType | None, value: TensorType | None, *rest: TensorType | None) -> Any:
        """The output, and the caches."""
        mask, added, past_key, past_value, length, _, indirection, bias = (*rest, *[None] * 8)[:8]
        if query.rank != 3 or query.dims[1] != 1 or key is None or value is None:
            raise ShapeError(f"input 'query' is {query}, 'key' {key}, 'value' {value}; accepted: [batch, 1, hidden], and both")
        if key.rank == 4 or not self.past_present_share_buffer:
            own = bias if key.rank == 3 else None
            found: Any = self._others().infer(query, key, value, own, mask, added, past_key, past_value)
            return found
        batch = query.dims[0]
        if past_key is None or past_value is None or length is None or length.size != 1:
            raise ShapeError(f"'past_key' {past_key}, 'past_value' {past_value}, 'past_sequence_length' {length}; accepted: all")
        room = past_key.dims[2] if past_key.rank == 4 else -1
        if indirection is not None and (indirection.rank != 3 or indirection.dims[0] * indirection.dims[1] != batch):
            raise ShapeError(f"'cache_indirection' is {indirection}; accepted: [texts, beams, {room}], {batch} in all")
        if indirection is not None and indirection.dims[2] != room:
            raise ShapeError(f"'cache_indirection' is {indirection}; accepted: [texts, beams, {room}]")
        lengths = TensorType(DType.INT32, (batch,))
        y = self._cached(room).infer(query, key, value, past_key, past_value, lengths)[0]
        presents = (past.with_shape(past.shape) for past in (past_key, past_value))
        return query.with_shape((batch, 1, y.dims[2])), *presents

    def _cached(self, room: int) -> CachedAttention:
        return CachedAttention(heads=self.num_heads, kv_heads=self.num_heads, room=room, scale=self.scale)

    def compose(self, g: GraphBuilder, query: str, key: str, value: str, *rest: str) -> Any:
        """MultiHeadAttention, or CachedAttention with caches of the other beams."""
        mask, added, past_key, past_value, length, _, indirection, bias = (*rest, *[""] * 8)[:8]
        t = g.given(query)
        rows, _, hidden = t.dims
        if g.given(key).rank == 4:
            query = node(g, Add(), query, cut(g, bias, 0, 0, hidden)) if bias else query
            return g.node(self._others(), query, key, value, "", mask, added, outputs=3)
        if not self.past_present_share_buffer:
            return g.node(self._others(), query, key, value, bias, mask, added, past_key, past_value, outputs=3)
        if bias:
            starts = (0, hidden, 2 * hidden, 2 * hidden + g.given(value).dims[2])
            sides = (query, key, value)
            query, key, value = (node(g, Add(), x, cut(g, bias, 0, *starts[i : i + 2])) for i, x in enumerate(sides))
        lengths = node(g, Expand(), reshape(g, length, (1,)), ints(g, [rows]))
        pasts = [past_key, past_value]
        read = [self._of_beams(g, one, length, indirection) for one in pasts] if indirection else pasts
        bound = attention_mask(g, mask, added, (rows, 1, g.given(mask).dims[1] if mask else 0), self.mask_filter_value, t.dtype)
        inputs = [query, key, value, *read, lengths, *["", "", ""], bound]
        while not inputs[-1]:
            inputs.pop()
        y, *presents = g.node(self._cached(g.given(past_key).dims[2]), *inputs, outputs=3)
        if indirection:
            written = node(g, Cast(to=DType.INT64), lengths)
            presents = [self._written(g, past, new, written) for past, new in zip(pasts, (key, value), strict=True)]
        return y, *presents

    def _of_beams(self, g: GraphBuilder, past: str, length: str, indirection: str) -> str:
        """The cache with the keys of each beam, from whichever beam's they are. Places that are not in use may name any."""
        (rows, heads, room, size), (texts, beams, _) = g.given(past).dims, g.given(indirection).dims
        used = node(g, Less(), g.constant(list(range(room)), DType.INT32), reshape(g, length, (1,)))
        beam = node(g, Where(), used, indirection, g.constant(0, DType.INT32))
        beam = node(g, Expand(), reshape(g, beam, (texts, beams, 1, room, 1)), ints(g, [texts, beams, heads, room, size]))
        found = node(g, GatherElements(axis=1), reshape(g, past, (texts, beams, heads, room, size)), beam)
        return reshape(g, found, (rows, heads, room, size))

    def _written(self, g: GraphBuilder, past: str, new: str, places: str) -> str:
        """The cache with the new row."""
        rows, heads, _, size = g.given(past).dims
        row = transpose(g, reshape(g, new, (rows, 1, heads, size)), (0, 2, 1, 3))
        return node(g, TensorScatter(axis=2), past, row, places)
