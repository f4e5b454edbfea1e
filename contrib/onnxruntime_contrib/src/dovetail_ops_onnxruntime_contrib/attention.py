"""Attention and MultiHeadAttention of ONNX Runtime, composed of the standard's Attention."""

import math
from functools import lru_cache
from typing import Any

import numpy as np

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.and_ import And
from dovetail_ops_onnx.attention import Attention as StandardAttention
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.greater_or_equal import GreaterOrEqual
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.where import Where
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import cut, node, reshape, transpose

__all__ = ["Attention", "MultiHeadAttention", "attention_mask"]

_INT32 = frozenset({DType.INT32})

_LEAST = {DType.FLOAT32: -math.inf, DType.FLOAT16: -65504.0, DType.BFLOAT16: -(2.0**128 - 2.0**120)}
"""The least of the value for keys that are left out, which is often the least float32."""


class Attention(MicrosoftOperator):
    """Self-attention with its projection: Q, K and V are input [batch, sequence, hidden] times parts of `weights`, plus `bias`.

    `mask_index` is [batch] (how many keys count), [2 batch] (these, and how many at the start do not), [3 batch + 2] (these, and
    offsets that follow from them), [batch, total] or [batch, sequence, total] (0: left out). What is left out gets
    `mask_filter_value` added. `past` and `present` are [2, batch, heads, length, head size].
    """

    inputs = (
        "input: T",
        "weights: T",
        "bias?: T",
        "mask_index?: M",
        "past?: T",
        "attention_bias?: T",
        "past_sequence_length?: M",
    )
    outputs = ("output: T", "present?: T")
    types = {"T": FLOAT_TYPES, "M": _INT32}
    num_heads: int
    do_rotary: bool = False
    mask_filter_value: float = -10000.0
    past_present_share_buffer: bool = False
    qkv_hidden_sizes: tuple[int, ...] | None = None
    rotary_embedding_dim: int = 0
    scale: float = 0.0
    unidirectional: bool = False

    def __post_init__(self) -> None:
        if self.do_rotary or self.past_present_share_buffer or self.num_heads < 1:
            raise OperatorError(
                "attributes 'do_rotary' or 'past_present_share_buffer' are set, or 'num_heads' is not; accepted: no, no, yes"
            )

    def parts(self, weights: TensorType) -> tuple[int, int, int]:
        """The columns of `weights` for Q, K and V."""
        columns = weights.dims[-1]
        q, k, v = self.qkv_hidden_sizes or (columns // 3,) * 3
        if q != k or q + k + v != columns or q % self.num_heads or v % self.num_heads:
            raise ShapeError(
                f"input 'weights' is {weights}, the parts are {q}, {k}, {v}; accepted: multiples of {self.num_heads} heads"
            )
        return q, k, v

    def infer(self, x: TensorType, weights: TensorType, bias: TensorType | None = None, *rest: TensorType | None) -> Any:
        """[batch, sequence, V's hidden size], and past with the new keys and values."""
        mask, past, added, length = (*rest, None, None, None, None)[:4]
        if x.rank != 3 or weights.rank != 2 or x.dims[2] != weights.dims[0] or length is not None:
            raise ShapeError(f"input 'input' is {x}, 'weights' {weights}; accepted: [B, S, D], [D, E], no past_sequence_length")
        q, _, v = self.parts(weights)
        batch, sequence, _ = x.dims
        if bias is not None and bias.dims != weights.dims[1:]:
            raise ShapeError(f"input 'bias' is {bias}; accepted: [{weights.dims[1]}]")
        before = 0
        if past is not None:
            before = past.dims[3] if past.rank == 5 else -1
            if q != v or past.dims != (2, batch, self.num_heads, before, q // self.num_heads):
                raise ShapeError(f"input 'past' is {past}; accepted: [2, {batch}, {self.num_heads}, past, {q // self.num_heads}]")
        total = before + sequence
        _check_mask("mask_index", mask, (batch, sequence, total), (batch, 2 * batch, 3 * batch + 2))
        _check_bias(added, batch, self.num_heads, sequence, total)
        return x.with_shape((batch, sequence, v)), x.with_shape((2, batch, self.num_heads, total, q // self.num_heads))

    def compose(self, g: GraphBuilder, x: str, weights: str, bias: str = "", *rest: str) -> Any:
        """A product, three parts, the standard's Attention."""
        mask, past, added, _ = (*rest, "", "", "", "")[:4]
        both = node(g, MatMul(), x, weights)
        both = node(g, Add(), both, bias) if bias else both
        return self.attend(g, both, g.given(x), self.parts(g.given(weights)), (mask, past, added))

    def attend(self, g: GraphBuilder, both: str, t: TensorType, parts: tuple[int, int, int], rest: tuple[str, str, str]) -> Any:
        """The outputs, from Q, K and V [batch, sequence, their parts] side by side, of the type of `t`; mask, past and bias."""
        (mask, past, added), (q, k, v) = rest, parts
        batch, sequence = t.dims[:2]
        if past and q == v and (sequence == 1 or not self.unidirectional):
            return self._continued(g, both, t, rest)
        sides = [cut(g, both, 2, start, stop) for start, stop in ((0, q), (q, q + k), (q + k, q + k + v))]
        before = g.given(past).dims[3] if past else 0
        shape = (batch, self.num_heads, before, q // self.num_heads)
        olds = [reshape(g, cut(g, past, 0, i, i + 1), shape) for i in (0, 1)] if past else ["", ""]
        bound = attention_mask(g, mask, added, (batch, sequence, before + sequence), self.mask_filter_value, t.dtype)
        y, keys, values = _attend(g, self.num_heads, self.unidirectional, self.scale, [*sides, bound, *olds], q, v)
        whole = (1, batch, self.num_heads, before + sequence, q // self.num_heads)
        return y, node(g, Concat(axis=0), reshape(g, keys, whole), reshape(g, values, whole)) if q == v else keys

    def _continued(self, g: GraphBuilder, both: str, t: TensorType, rest: tuple[str, str, str]) -> Any:
        """As `attend`, for queries that see all keys: `past` is copied once, for K and V together, into `present`."""
        (mask, past, added), (batch, sequence) = rest, t.dims[:2]
        _, _, heads, before, size = g.given(past).dims
        parts = transpose(g, reshape(g, both, (batch, sequence, 3, heads, size)), (2, 0, 3, 1, 4))
        present = node(g, Concat(axis=3), past, cut(g, parts, 0, 1, 3))
        found = [(parts, 0, sequence), (present, 0, before + sequence), (present, 1, before + sequence)]
        q, k, v = (reshape(g, cut(g, x, 0, i, i + 1), (batch, heads, length, size)) for x, i, length in found)
        bound = attention_mask(g, mask, added, (batch, sequence, before + sequence), self.mask_filter_value, t.dtype)
        y = node(g, StandardAttention(scale=self.scale or None), q, k, v, *[bound] * bool(bound))
        return reshape(g, transpose(g, y, (0, 2, 1, 3)), (batch, sequence, heads * size)), present


class MultiHeadAttention(MicrosoftOperator):
    """Attention of query [batch, sequence, hidden] to key and value of that form, or [batch, heads, length, head size].

    Or `query` holds all three, [batch, sequence, heads, 3, head size]; or `key` both, [batch, length, heads, 2, head size].
    `bias` is that of the three projections; keys and values of four axes have theirs already, so that only the query gets it.
    `key_padding_mask` is [batch] (how many keys count), [3 batch + 2] (these, and offsets that follow from them), [batch, total]
    or [batch, sequence, total] (0: left out); what is left out gets `mask_filter_value` added. With `unidirectional` queries see
    no later keys, but the last one sees all of them: one query to many keys is a step of a text whose caches come as keys.
    """

    inputs = (
        "query: T",
        "key?: T",
        "value?: T",
        "bias?: T",
        "key_padding_mask?: M",
        "attention_bias?: T",
        "past_key?: T",
        "past_value?: T",
        "past_sequence_length?: M",
        "cache_indirection?: M",
    )
    outputs = ("output: T", "present_key?: T", "present_value?: T", "qk?: T")
    types = {"T": FLOAT_TYPES, "M": _INT32}
    num_heads: int
    mask_filter_value: float = -10000.0
    scale: float = 0.0
    unidirectional: bool = False

    def __post_init__(self) -> None:
        if self.num_heads < 1:
            raise OperatorError(f"attribute 'num_heads' is {self.num_heads}; accepted: 1 or more")

    def sizes(self, query: TensorType, key: TensorType | None, value: TensorType | None) -> tuple[int, int, int, int, int]:
        """Batch, sequence, length of the new keys, hidden size of Q and K, and of V. Raises `ShapeError`."""
        n = self.num_heads
        if query.rank == 5 and key is None and value is None and query.dims[2:4] == (n, 3):
            hidden = n * query.dims[4]
            return query.dims[0], query.dims[1], query.dims[1], hidden, hidden
        if query.rank == 3 and key is not None and not query.dims[2] % n and key.dims[:1] == query.dims[:1]:
            batch, sequence, hidden = query.dims
            size = hidden // n
            if value is None and key.rank == 5 and key.dims[2:] == (n, 2, size):
                return batch, sequence, key.dims[1], hidden, hidden
            pair = () if value is None else (key.rank, value.rank)
            if value is not None and pair == (3, 3) and key.dims == (*value.dims[:2], hidden) and not value.dims[2] % n:
                return batch, sequence, key.dims[1], hidden, value.dims[2]
            if (
                value is not None
                and pair == (4, 4)
                and key.dims == (batch, n, value.dims[2], size)
                and value.dims[:2] == (batch, n)
            ):
                return batch, sequence, key.dims[2], hidden, n * value.dims[3]
        raise ShapeError(f"input 'query' is {query}, 'key' {key}, 'value' {value}; accepted: [B, S, {n} * H] each, or packed")

    def infer(
        self, query: TensorType, key: TensorType | None = None, value: TensorType | None = None, *rest: TensorType | None
    ) -> Any:
        """[batch, sequence, V's hidden size], the keys and values with those of the past, and the products."""
        bias, mask, added, past_key, past_value, length, indirection = (*rest, *[None] * 7)[:7]
        batch, sequence, keys, hidden, v = self.sizes(query, key, value)
        if length is not None or indirection is not None or (past_key is None) != (past_value is None):
            raise OperatorError(
                "'past_sequence_length', 'cache_indirection' or one of the past inputs is given; accepted: both past or none"
            )
        if bias is not None and bias.dims != (2 * hidden + v,):
            raise ShapeError(f"input 'bias' is {bias}; accepted: [{2 * hidden + v}]")
        before = past_key.dims[2] if past_key is not None and past_key.rank == 4 else 0
        n = self.num_heads
        for name, t, size in (("past_key", past_key, hidden), ("past_value", past_value, v)):
            if t is not None and t.dims != (batch, n, before, size // n):
                raise ShapeError(f"input {name!r} is {t}; accepted: [{batch}, {n}, past, {size // n}]")
        total = before + keys
        _check_mask("key_padding_mask", mask, (batch, sequence, total), (batch, 3 * batch + 2))
        _check_bias(added, batch, n, sequence, total)
        shapes = ((batch, sequence, v), (batch, n, total, hidden // n), (batch, n, total, v // n), (batch, n, sequence, total))
        return tuple(query.with_shape(shape) for shape in shapes)

    def compose(self, g: GraphBuilder, query: str, key: str = "", value: str = "", *rest: str) -> Any:
        """The parts apart, biases, the standard's Attention."""
        bias, mask, added, past_key, past_value = (*rest, *[""] * 5)[:5]
        t = g.given(query)
        batch, sequence, keys, hidden, v = self.sizes(t, g.type_of(key), g.type_of(value))
        before = g.given(past_key).dims[2] if past_key else 0
        sides = [query, key, value]
        if t.rank == 5:
            sides = [self._part(g, query, i, (batch, sequence, hidden)) for i in range(3)]
        elif g.given(key).rank == 5:
            sides = [query, *(self._part(g, key, i, (batch, keys, hidden)) for i in range(2))]
        elif g.given(key).rank == 4:
            rows = [(batch, keys, size) for size in (hidden, v)]
            sides[1:] = [reshape(g, transpose(g, x, (0, 2, 1, 3)), shape) for x, shape in zip(sides[1:], rows, strict=True)]
        if bias:
            starts = (0, hidden, 2 * hidden, 2 * hidden + v)
            biased = sides[:1] if key and g.given(key).rank == 4 else sides
            sides[: len(biased)] = [node(g, Add(), x, cut(g, bias, 0, *starts[i : i + 2])) for i, x in enumerate(biased)]
        bound = attention_mask(g, mask, added, (batch, sequence, before + keys), self.mask_filter_value, t.dtype)
        causal = self.unidirectional and sequence == keys
        if self.unidirectional and not causal:
            bound = _before(g, bound, sequence, before, before + keys, t.dtype)
        inputs = [*sides, bound, past_key, past_value]
        return _attend(g, self.num_heads, causal, self.scale, inputs, hidden, v, outputs=4)

    def reference(self, *inputs: Any, **_: Any) -> Any:
        """The composition; for three separate inputs, a past and nothing else without building it, which takes twice as long."""
        query, key, value, bias, mask, added, past_key, past_value = (*inputs, *[None] * 8)[:8]
        plain = all(x is not None and x.ndim == 3 for x in (query, key, value)) and bias is None and mask is None
        if not plain or (self.unidirectional and query.shape[1] > 1):
            return super().reference(*inputs)
        op = _standard(self.num_heads, False, self.scale)
        return op.reference(query, key, value, added, past_key, past_value)

    @classmethod
    def has_reference(cls) -> bool:
        """False: devices run the composition."""
        return False

    def _part(self, g: GraphBuilder, packed: str, index: int, shape: tuple[int, ...]) -> str:
        return reshape(g, cut(g, packed, 3, index, index + 1), shape)


@lru_cache(256)
def _standard(heads: int, causal: bool, scale: float) -> StandardAttention:
    return StandardAttention(q_num_heads=heads, kv_num_heads=heads, is_causal=causal, scale=scale or None)


def _attend(
    g: GraphBuilder, heads: int, causal: bool, scale: float, inputs: list[str], hidden: int, v: int, outputs: int = 3
) -> tuple[str, ...]:
    op = _standard(heads, causal, scale)
    while not inputs[-1]:
        inputs.pop()
    found: tuple[str, ...] = g.node(op, *inputs, outputs=outputs)
    return found


def attention_mask(g: GraphBuilder, mask: str, added: str, sizes: tuple[int, int, int], filter_value: float, dtype: DType) -> str:
    """The term added to the scores [batch, heads, sequence, total]; `""` for nothing."""
    if not mask:
        return added
    batch, sequence, total = sizes
    rank = g.given(mask).rank
    kept = _counted_keys(g, mask, batch, total) if rank == 1 else node(g, Greater(), mask, g.constant(0, DType.INT32))
    least = max(filter_value, _LEAST[dtype])
    lost = node(g, Where(), kept, g.constant(0, dtype), g.constant(least, dtype))
    lost = reshape(g, lost, (batch, 1, sequence if rank == 3 else 1, total))
    return node(g, Add(), lost, added) if added else lost


def _counted_keys(g: GraphBuilder, mask: str, batch: int, total: int) -> str:
    """Which keys count [batch, total], from lengths and, in a mask of [2 batch], starts. Other offsets follow from these."""
    keys, size = g.constant([list(range(total))], DType.INT32), g.given(mask).dims[0]
    lengths = mask if size == batch else cut(g, mask, 0, 0, batch)
    kept = node(g, Less(), keys, reshape(g, lengths, (batch, 1)))
    if size != 2 * batch:
        return kept
    starts = reshape(g, cut(g, mask, 0, batch, size), (batch, 1))
    return node(g, And(), kept, node(g, GreaterOrEqual(), keys, starts))


def _before(g: GraphBuilder, bound: str, sequence: int, before: int, total: int, dtype: DType) -> str:
    """`bound` without keys that are later than a query, for all queries but the last: as onnxruntime has it for other lengths."""
    seen = np.tri(sequence, total, before, dtype=bool)
    seen[-1:] = True
    if seen.all():
        return bound
    lost = g.constant(np.where(seen, 0, _LEAST[dtype]), dtype)
    return node(g, Add(), bound, lost) if bound else lost


def _check_mask(name: str, mask: TensorType | None, sizes: tuple[int, int, int], counts: tuple[int, ...]) -> None:
    """Raise `ShapeError` for a mask that is not [batch, (sequence,) total] and has none of these counts of lengths."""
    accepted = [*((count,) for count in counts), (sizes[0], sizes[2]), sizes]
    if mask is not None and mask.dims not in accepted:
        raise ShapeError(f"input {name!r} is {mask}; accepted: {', '.join(str([*dims]) for dims in accepted)}")


def _check_bias(added: TensorType | None, batch: int, heads: int, sequence: int, total: int) -> None:
    if added is not None and (
        added.rank != 4
        or added.dims[2:] != (sequence, total)
        or added.dims[0] not in (1, batch)
        or added.dims[1] not in (1, heads)
    ):
        raise ShapeError(f"input 'attention_bias' is {added}; accepted: [{batch} or 1, {heads} or 1, {sequence}, {total}]")
