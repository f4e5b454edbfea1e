"""GroupQueryAttention of ONNX Runtime: attention with caches, as its generators of text run it."""

from typing import Any

from dovetail.errors import DataDependentShape
from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.cached_attention import CachedAttention
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator

__all__ = ["GroupQueryAttention"]

_QUANTIZED = ("kv_cache_bit_width", "qk_output", "sliding_window_cache", "smooth_softmax")


class GroupQueryAttention(MicrosoftOperator):
    """Causal attention of query [batch, sequence, num_heads * H] to keys and values of `kv_num_heads` heads and a cache of them.

    Without key and value the query holds all three. `past_key` and `past_value` are [batch, kv heads, length, H]; of sample b
    `seqlens_k[b] + 1` keys count in all, the new ones being the last of them. The caches that come out have the length of those
    that came in, or `total_sequence_length` where that is more; what follows the keys of a sample in it is as it was, or 0.
    `do_rotary` turns queries and new keys (RotaryEmbedding). `local_window_size` lets a query see so many keys, its own included.
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
    )
    outputs = ("output: T", "present_key?: T", "present_value?: T")
    types = {"T": FLOAT_TYPES, "M": frozenset({DType.INT32})}
    kv_num_heads: int
    num_heads: int
    causal: int = 1
    do_rotary: bool = False
    k_quant_type: str = "NONE"
    kv_cache_bit_width: int = 0
    local_window_size: int = -1
    qk_norm_epsilon: float = 1e-6
    qk_output: int = 0
    rotary_interleaved: bool = False
    scale: float = 0.0
    sliding_window_cache: int = 0
    smooth_softmax: int = 0
    softcap: float = 0.0
    v_quant_type: str = "NONE"

    def __post_init__(self) -> None:
        used = [name for name in _QUANTIZED if getattr(self, name) > 0]
        used += [name for name in ("k_quant_type", "v_quant_type") if getattr(self, name) != "NONE"]
        if used or not self.causal:
            raise OperatorError(f"attribute {(used or ['causal'])[0]!r} is set otherwise; accepted: its default")
        if self.kv_num_heads < 1 or self.num_heads < 1 or self.num_heads % self.kv_num_heads:
            raise OperatorError(
                f"attributes 'num_heads' {self.num_heads}, 'kv_num_heads' {self.kv_num_heads}; accepted: a multiple"
            )

    def infer(self, query: TensorType, key: TensorType | None, value: TensorType | None, *rest: TensorType | None) -> Any:
        """The output, and the caches. Raises `DataDependentShape` while their length is not known."""
        past_key, past_value, lengths, total, cos, sin, ids, bias = rest
        if total is None or total.size != 1:
            raise ShapeError(f"input 'total_sequence_length' is {total}; accepted: a scalar")
        if self.do_rotary and (cos is None or sin is None):
            raise ShapeError(f"input 'cos_cache' is {cos}, 'sin_cache' {sin}; accepted: both, for do_rotary")
        turned = (cos, sin, ids) if self.do_rotary else (None, None, ids)
        return self._cached(past_key, total).infer(query, key, value, past_key, past_value, lengths, *turned, bias)

    def compose(self, g: GraphBuilder, query: str, key: str, value: str, *rest: str) -> Any:
        """CachedAttention, which has the length of the caches as a number."""
        past_key, past_value, lengths, total, cos, sin, ids, bias = (*rest, *[""] * 4)[:8]
        turned = [cos, sin, ids] if self.do_rotary else ["", "", ""]
        inputs = [query, key, value, past_key, past_value, lengths, *turned, bias]
        while not inputs[-1]:
            inputs.pop()
        return g.node(self._cached(g.type_of(past_key), g.type_of(total)), *inputs, outputs=3)

    def _cached(self, past_key: TensorType | None, total: TensorType | None) -> CachedAttention:
        if total is None or total.value is None:
            raise DataDependentShape(
                "the length of the caches is that of input 'total_sequence_length', which is not known while planning"
            )
        before = past_key.dims[2] if past_key is not None and past_key.rank == 4 else 0
        return CachedAttention(
            heads=self.num_heads,
            kv_heads=self.kv_num_heads,
            room=max(before, int(total.value.reshape(()))),
            scale=self.scale,
            softcap=self.softcap,
            window=self.local_window_size,
            interleaved=self.rotary_interleaved,
        )
