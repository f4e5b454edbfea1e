"""Attention: https://onnx.ai/onnx/operators/onnx__Attention.html (Vaswani et al., 2017)."""

import math
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.op import FLOATS, NUMERIC, DType, GraphBuilder, KernelSource, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._attention_used_keys import UsedKeys
from dovetail_ops_onnx._axes import require_broadcast
from dovetail_ops_onnx._types import BOOL, Types

__all__ = ["Attention", "Attention_23", "Attention_24", "Sizes"]


@dataclass(frozen=True)
class Sizes:
    """The sizes from the shapes of the inputs: `past` keys come before the `keys` that are given; `total` is their sum."""

    batch: int
    heads: int
    kv_heads: int
    queries: int
    keys: int
    past: int
    head: int
    v_head: int

    @property
    def total(self) -> int:
        return self.past + self.keys

    @property
    def scores(self) -> tuple[int, int, int, int]:
        return self.batch, self.heads, self.queries, self.total


class Attention_23(Operator):
    """Y = softmax(scale * Q K' + mask) V for each head; a row whose keys are all masked is zeros.

    Q, K and V are [batch, heads, sequence, head size], or [batch, sequence, heads * head size] with `q_num_heads` and
    `kv_num_heads`; each key-value head serves heads / kv_heads query heads. `scale` is 1 / sqrt(head size) by default.
    `attn_mask` broadcasts to the scores [batch, heads, queries, total]: numbers that are added, or False for keys that are left
    out; a last dimension that is shorter masks the rest. `is_causal` lets query i see the keys up to i + past. `softcap` c makes
    the scores c * tanh(scores / c). `softmax_precision` is the type in which the softmax is computed.
    `qk_matmul_output` has the scores after the product (mode 0), the cap (1), the mask (2) or the softmax (3).
    """

    since = 23
    inputs: ClassVar[tuple[Any, ...]] = ("Q: T1", "K: T1", "V: T2", "attn_mask?: U", "past_key?: T1", "past_value?: T2")
    outputs = ("Y: T1", "present_key?: T1", "present_value?: T2", "qk_matmul_output?: T1")
    propagates_nan = True
    types = {"T1": FLOATS, "T2": FLOATS, "U": NUMERIC | BOOL}

    is_causal: bool = False
    kv_num_heads: int | None = None
    q_num_heads: int | None = None
    qk_matmul_output_mode: int = 0
    scale: float | None = None
    softcap: float = 0.0
    softmax_precision: DType | None = None

    def __post_init__(self) -> None:
        if self.qk_matmul_output_mode not in range(4):
            raise OperatorError(f"attribute 'qk_matmul_output_mode' is {self.qk_matmul_output_mode}; accepted: 0 to 3")
        if self.softmax_precision is not None and self.softmax_precision not in FLOATS:
            raise OperatorError(f"attribute 'softmax_precision' is {self.softmax_precision}; accepted: a floating-point type")
        for name in ("q_num_heads", "kv_num_heads"):
            if (given := getattr(self, name)) is not None and given < 1:
                raise OperatorError(f"attribute '{name}' is {given}; accepted: 1 or more")

    @property
    def window(self) -> tuple[int, int]:
        """How many keys to the left and to the right of its own position a query sees; -1 for all."""
        return -1, -1

    def infer(
        self,
        Q: TensorType,
        K: TensorType,
        V: TensorType,
        mask: TensorType | None = None,
        past_key: TensorType | None = None,
        past_value: TensorType | None = None,
        lengths: TensorType | None = None,
    ) -> tuple[TensorType, ...]:
        """Y in the form of Q, and the caches and the scores, which always have four dimensions."""
        s = self.sizes(Q, K, V, past_key, past_value)
        if mask is not None:
            _check_mask(mask, s)
        if lengths is not None:
            if past_key is not None:
                raise OperatorError("nonpad_kv_seqlen and past_key are both given; accepted: one of them")
            if lengths.dims != (s.batch,):
                raise ShapeError(f"input 'nonpad_kv_seqlen' is {lengths}; accepted: shape [{s.batch}]")
        rows = (s.batch, s.queries, s.heads * s.v_head) if Q.rank == 3 else (s.batch, s.heads, s.queries, s.v_head)
        present = (s.batch, s.kv_heads, s.total)
        return (
            Q.with_shape(rows),
            K.with_shape((*present, s.head)),
            V.with_shape((*present, s.v_head)),
            Q.with_shape(s.scores),
        )

    def sizes(
        self,
        Q: TensorType,
        K: TensorType,
        V: TensorType,
        past_key: TensorType | None = None,
        past_value: TensorType | None = None,
    ) -> Sizes:
        """The sizes. Raises `ShapeError` or `OperatorError` for shapes and head counts that do not fit each other."""
        q, k, v = self._split(Q, "Q", True), self._split(K, "K", False), self._split(V, "V", False)
        if not len(Q.dims) == len(K.dims) == len(V.dims):
            raise ShapeError(f"Q is {Q}, K is {K}, V is {V}; accepted: the same rank for all")
        if q[0] != k[0] or k[:3] != v[:3] or q[3] != k[3]:
            raise ShapeError(f"Q is {Q}, K is {K}, V is {V}; accepted: one batch size, one length of K and V, one head size")
        if not k[1] or q[1] % k[1]:
            raise OperatorError(f"{q[1]} query heads cannot share {k[1]} key-value heads; accepted: a divisor of {q[1]}")
        if (past_key is None) != (past_value is None):
            raise OperatorError("past_key and past_value must be given together")
        past = 0
        if past_key is not None and past_value is not None:
            past = past_key.dims[2] if past_key.rank == 4 else 0
            for name, given, head in (("past_key", past_key, k[3]), ("past_value", past_value, v[3])):
                if given.dims != (k[0], k[1], past, head):
                    raise ShapeError(f"input '{name}' is {given}; accepted: shape [{k[0]}, {k[1]}, past length, {head}]")
        return Sizes(q[0], q[1], k[1], q[2], k[2], past, q[3], v[3])

    def _split(self, given: TensorType, name: str, is_query: bool) -> tuple[int, int, int, int]:
        """[batch, heads, length, head size] of an input."""
        if given.rank == 4:
            batch, heads, length, size = given.dims
            return batch, heads, length, size
        count = self.q_num_heads if is_query else self.kv_num_heads
        if given.rank != 3 or count is None:
            raise OperatorError(
                f"input '{name}' is {given}; accepted: [batch, heads, length, head size], "
                "or [batch, length, hidden size] with q_num_heads and kv_num_heads"
            )
        batch, length, hidden = given.dims
        if hidden % count:
            raise ShapeError(f"input '{name}' is {given}: a hidden size of {hidden} is not {count} heads")
        return batch, count, length, hidden // count

    def visible(self, s: Sizes) -> NDArray[np.bool_]:
        """Which keys [queries, total] each query sees by its position alone: query i is at i + past."""
        distance = np.arange(s.queries)[:, None] + s.past - np.arange(s.total)
        seen = np.ones(distance.shape, np.bool_)
        left, right = self.window
        if self.is_causal:
            seen &= distance >= 0
        if left >= 0:
            seen &= distance <= left
        if right >= 0:
            seen &= distance >= -right
        return seen

    def sees_all(self, s: Sizes) -> bool:
        """Whether every query sees every key by its position: whether all of `visible` is True, without making that."""
        if not (s.queries and s.total):
            return True
        least, most = s.past - (s.total - 1), s.past + s.queries - 1  # how far a query is behind a key
        left, right = self.window
        return (not self.is_causal or least >= 0) and (left < 0 or most <= left) and (right < 0 or least >= -right)

    def factor(self, s: Sizes) -> float:
        """The factor of the products of queries and keys."""
        return 1 / math.sqrt(max(1, s.head)) if self.scale is None else self.scale

    def reference(self, *inputs: Any, **_: Any) -> Any:
        """The composition by the references of its operators, or the same without building it."""
        from dovetail_ops_onnx._attention_reference import reference  # here, because few nodes run on the host

        return reference(self, *inputs)

    @classmethod
    def has_reference(cls) -> bool:
        """False: devices run kernels of theirs or the composition."""
        return cls.reference is not Attention_23.reference

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        """Two products and a softmax of five operations a score."""
        q, k, v, _, past_key, past_value = (*inputs, *[None] * 6)[:6]
        assert q is not None
        assert k is not None
        assert v is not None
        s = self.sizes(q, k, v, past_key, past_value)
        return math.prod(s.scores) * (2 * s.head + 2 * s.v_head + 5)

    def compose(
        self,
        g: GraphBuilder,
        Q: str,
        K: str,
        V: str,
        mask: str = "",
        past_key: str = "",
        past_value: str = "",
        lengths: str = "",
    ) -> tuple[str, ...]:
        """The function of the standard: products, mask and softmax as nodes of their own."""
        q, k, v, t = g.given(Q), g.given(K), g.given(V), g.type_of(mask)
        sizes = self.sizes(q, k, v, g.type_of(past_key), g.type_of(past_value))
        from dovetail_ops_onnx._attention import Composer  # here, because devices with a kernel need none of its operators

        return Composer(g, self, sizes, q.dtype, v.dtype).build(
            (Q, K, V), q.rank == 3, (mask, t), (past_key, past_value), lengths
        )


class Attention_24(Attention_23):
    """Attention with `nonpad_kv_seqlen`, how many keys of each sample are valid; the queries are the last of them."""

    since = 24
    propagates_nan = True
    inputs: ClassVar[tuple[Any, ...]] = (*Attention_23.inputs, "nonpad_kv_seqlen?: int64")
    kernels: ClassVar[tuple[KernelSource, ...]] = (UsedKeys(),)


class Attention(Attention_24):
    """Attention whose queries see the keys from `left_window_size` before to `right_window_size` after their position."""

    since = 25
    propagates_nan = True
    left_window_size: int = -1
    right_window_size: int = -1

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("left_window_size", "right_window_size"):
            if getattr(self, name) < -1:
                raise OperatorError(f"attribute '{name}' is {getattr(self, name)}; accepted: -1 for no limit, or 0 or more")

    @property
    def window(self) -> tuple[int, int]:
        """The two attributes."""
        return self.left_window_size, self.right_window_size


def _check_mask(mask: TensorType, s: Sizes) -> None:
    """A shorter last dimension is filled up, also one of 1."""
    filled = (*mask.dims[:-1], max(s.total, mask.dims[-1])) if mask.rank else ()
    require_broadcast("attn_mask", filled, s.scores)
