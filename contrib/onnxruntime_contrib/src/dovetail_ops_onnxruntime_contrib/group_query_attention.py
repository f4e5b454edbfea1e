"""GroupQueryAttention of ONNX Runtime: attention with caches, as its generators of text run it."""

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import DataDependentShape
from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.cached_attention import CachedAttention
from dovetail_ops_onnx.rms_normalization import RMSNormalization
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import cut, node, reshape

__all__ = ["GroupQueryAttention"]

Array = NDArray[Any]

_REFUSED = ("kv_cache_bit_width", "qk_output")


class GroupQueryAttention(MicrosoftOperator):
    """Causal attention of query [batch, sequence, num_heads * H] to keys and values of `kv_num_heads` heads and a cache of them.

    Without key and value the query holds all three. `past_key` and `past_value` are [batch, kv heads, length, H]; of sample b
    `seqlens_k[b] + 1` keys count in all, the new ones being the last of them. The caches that come out have the length of those
    that came in, or `total_sequence_length` where that is more; what follows the keys of a sample in it is as it was, or 0.
    `do_rotary` turns queries and new keys (RotaryEmbedding), after RMSNormalization of each head by `q_norm_weight` and
    `k_norm_weight`. `local_window_size` lets a query see so many keys, its own included. `head_sink` [num_heads] is the score of
    one more key, whose value is zeros; `smooth_softmax` 1 makes it 0. With `sliding_window_cache` caches hold the last keys.
    """

    inputs = (
        "query: T",
        "key?: T",
        "value?: T",
        "past_key?: T",
        "past_value?: T",
        "seqlens_k: M",
        "total_sequence_length: M",
        "cos_cache?: T",
        "sin_cache?: T",
        "position_ids?: int64",
        "attention_bias?: T",
        "head_sink?: T",
        "k_scale?: float32",
        "v_scale?: float32",
        "q_norm_weight?: T",
        "k_norm_weight?: T",
        "query_seqlens?: M",
    )
    outputs = ("output: T", "present_key?: T", "present_value?: T")
    types = {"T": FLOAT_TYPES, "M": frozenset({DType.INT32})}
    kv_num_heads: int
    num_heads: int
    causal: int = 1
    do_rotary: bool = False
    k_norm_epsilon: float | None = None
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    local_window_size: int = -1
    q_norm_epsilon: float | None = None
    qk_norm_epsilon: float = 1e-6
    qk_output: int = 0
    rotary_interleaved: bool = False
    scale: float = 0.0
    sliding_window_cache: bool = False
    smooth_softmax: int = -1
    softcap: float = 0.0
    v_quant_type: str = "NONE"

    def __post_init__(self) -> None:
        used = [name for name in _REFUSED if getattr(self, name) > 0]
        used += [name for name in ("k_quant_type", "v_quant_type") if getattr(self, name) != "NONE"]
        if used or not self.causal:
            raise OperatorError(f"attribute {(used or ['causal'])[0]!r} is set otherwise; accepted: its default")
        if self.kv_num_heads < 1 or self.num_heads < 1 or self.num_heads % self.kv_num_heads:
            raise OperatorError(
                f"attributes 'num_heads' {self.num_heads}, 'kv_num_heads' {self.kv_num_heads}; accepted: a multiple"
            )

    def infer(self, query: TensorType, key: TensorType | None, value: TensorType | None, *rest: TensorType | None) -> Any:
        """The output, and the caches. Raises `DataDependentShape` while their length is not known."""
        given = (*rest, *[None] * 10)[:14]
        past_key, past_value, lengths, total, cos, sin, ids, bias, sink, *scales, q_norm, k_norm, counts = given
        if counts is not None or any(t is not None for t in scales):
            raise OperatorError("'k_scale', 'v_scale' or 'query_seqlens' is given; accepted: none of them")
        if (q_norm is None) != (k_norm is None):
            raise OperatorError("one of 'q_norm_weight' and 'k_norm_weight' is given; accepted: both, or none")
        if total is None or total.size != 1:
            raise ShapeError(f"input 'total_sequence_length' is {total}; accepted: a scalar")
        if self.do_rotary and (cos is None or sin is None):
            raise ShapeError(f"input 'cos_cache' is {cos}, 'sin_cache' {sin}; accepted: both, for do_rotary")
        turned = (cos, sin, ids) if self.do_rotary else (None, None, ids)
        return self._cached(past_key, total).infer(query, key, value, past_key, past_value, lengths, *turned, bias, sink)

    def compose(self, g: GraphBuilder, query: str, key: str, value: str, *rest: str) -> Any:
        """CachedAttention, which has the length of the caches as a number."""
        past_key, past_value, lengths, total, cos, sin, ids, bias, sink, _, _, *norms = (*rest, *[""] * 10)[:13]
        if norms[0]:
            query, key, value = self._normalized(g, [query, key, value], norms)
        if self.smooth_softmax == 1 and not sink:
            sink = g.constant([0] * self.num_heads, g.given(query).dtype)
        turned = [cos, sin, ids] if self.do_rotary else ["", "", ""]
        inputs = [query, key, value, past_key, past_value, lengths, *turned, bias, sink]
        while not inputs[-1]:
            inputs.pop()
        return g.node(self._cached(g.type_of(past_key), g.type_of(total)), *inputs, outputs=3)

    def reference(self, query: Array, key: Array | None, value: Array | None, *rest: Array | None) -> tuple[Array, ...]:
        """As the composition, by the kernel for the host: nodes whose caches have a length that is data run here."""
        past_key, past_value, lengths, total, cos, sin, ids, bias, sink, _, _, *norms = (*rest, *[None] * 10)[:13]
        sides = [query, key, value]
        if norms[0] is not None and norms[1] is not None:
            sides = self._normalized_arrays(query, key, value, (norms[0], norms[1]))
        if self.smooth_softmax == 1 and sink is None:
            sink = np.zeros(self.num_heads, query.dtype)
        turned = (cos, sin, ids) if self.do_rotary else (None, None, ids)
        types = [None if array is None else TensorType.of(array, known=True) for array in (past_key, total)]
        return self._cached(*types).on_host(*sides, past_key, past_value, lengths, *turned, bias, sink)

    def _normalized_arrays(
        self, query: Array, key: Array | None, value: Array | None, weights: tuple[Array, Array]
    ) -> list[Array | None]:
        """As `_normalized`."""
        rows, size, counts = query.shape[:2], weights[0].size, (self.num_heads, self.kv_num_heads)
        if key is None or value is None:
            query, key, value = np.split(query, [size * end for end in accumulate(counts)], 2)
        sides = [query, key]
        for i, (weight, epsilon) in enumerate(zip(weights, (self.q_norm_epsilon, self.k_norm_epsilon), strict=True)):
            op = RMSNormalization(axis=-1, epsilon=self.qk_norm_epsilon if epsilon is None else epsilon)
            heads = sides[i].reshape(*rows, counts[i], size)
            sides[i] = op.reference(heads, weight).reshape(*rows, counts[i] * size)
        return [*sides, value]

    def _normalized(self, g: GraphBuilder, sides: list[str], weights: Sequence[str]) -> list[str]:
        """Queries, keys and values, the first two with each head normalized."""
        (batch, sequence, _), size = g.given(sides[0]).dims, g.given(weights[0]).size
        counts = (self.num_heads, self.kv_num_heads, self.kv_num_heads)
        if not sides[1]:
            ends = accumulate(counts, initial=0)
            sides = [cut(g, sides[0], 2, start * size, stop * size) for start, stop in pairwise(ends)]
        for i, (weight, epsilon) in enumerate(zip(weights, (self.q_norm_epsilon, self.k_norm_epsilon), strict=True)):
            op = RMSNormalization(axis=-1, epsilon=self.qk_norm_epsilon if epsilon is None else epsilon)
            heads = reshape(g, sides[i], (batch, sequence, counts[i], size))
            sides[i] = reshape(g, node(g, op, heads, weight), (batch, sequence, counts[i] * size))
        return sides

    def _cached(self, past_key: TensorType | None, total: TensorType | None) -> CachedAttention:
        before = past_key.dims[2] if past_key is not None and past_key.rank == 4 else 0
        room = before
        if not self.sliding_window_cache:
            if total is None or total.value is None:
                raise DataDependentShape(
                    "the length of the caches is that of input 'total_sequence_length', which is not known while planning"
                )
            room = max(before, int(total.value.reshape(())))
        return CachedAttention(
            heads=self.num_heads,
            kv_heads=self.kv_num_heads,
            room=room,
            scale=self.scale,
            softcap=self.softcap,
            window=self.local_window_size,
            interleaved=self.rotary_interleaved,
            sliding=self.sliding_window_cache,
        )
