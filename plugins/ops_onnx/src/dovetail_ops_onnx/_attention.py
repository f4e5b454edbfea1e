"""Attention as other operators: the function that the standard gives for it."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.and_ import And
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.greater_or_equal import GreaterOrEqual
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.less_or_equal import LessOrEqual
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.pad import Pad
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.transpose import Transpose
from dovetail_ops_onnx.where import Where

if TYPE_CHECKING:
    from dovetail_ops_onnx.attention import Attention_23, Sizes

__all__ = ["Composer"]


class Composer:
    """Builds the nodes of one Attention."""

    def __init__(self, g: GraphBuilder, op: "Attention_23", sizes: "Sizes", dtype: DType, value_dtype: DType) -> None:
        self.g, self.op, self.s, self.dtype, self.value_dtype = g, op, sizes, dtype, value_dtype

    def build(
        self,
        qkv: Sequence[str],
        packed: bool,
        mask: tuple[str, TensorType | None],
        past: tuple[str, str],
        lengths: str,
    ) -> tuple[str, ...]:
        """Y, the present key and value, and the scores that the mode asks for."""
        s, g = self.s, self.g
        q, k, v = (
            self._heads(x, count) if packed else x for x, count in zip(qkv, (s.heads, s.kv_heads, s.kv_heads), strict=True)
        )
        if past[0]:
            k, v = g.node(Concat(axis=2), past[0], k), g.node(Concat(axis=2), past[1], v)
        elif not packed:
            k, v = g.node(Identity(), k), g.node(Identity(), v)
        stages = [self._scores(q, k)]
        stages.append(self._capped(stages[0]))
        bias = self._bias(mask, lengths)
        stages.append(g.node(Add(), stages[1], bias) if bias else stages[1])
        stages.append(self._weights(stages[1], bias) if bias else self._softmax(stages[2]))
        y = self._summed(stages[3], v)
        if packed:
            y = self._reshape(g.node(Transpose(perm=(0, 2, 1, 3)), y), (s.batch, s.queries, s.heads * s.v_head))
        return y, k, v, stages[self.op.qk_matmul_output_mode]

    def _heads(self, x: str, count: int) -> str:
        """[batch, length, hidden] as [batch, heads, length, head size]."""
        given = self.g.given(x)
        batch, length, hidden = given.dims
        split = self._reshape(x, (batch, length, count, hidden // count))
        y: str = self.g.node(Transpose(perm=(0, 2, 1, 3)), split)
        return y

    def _scores(self, q: str, k: str) -> str:
        """The scaled products [batch, heads, queries, total]. Both sides are scaled, lest narrow types overflow."""
        s, g = self.s, self.g
        factor = self.op.factor(s)
        # The root of a negative factor would not be real: its sign goes to the queries.
        root = self._constant(abs(factor) ** 0.5)
        q = g.node(Mul(), q, self._constant(np.copysign(abs(factor) ** 0.5, factor)))
        keys = g.node(Transpose(perm=(0, 1, 3, 2)), g.node(Mul(), k, root))
        return self._reshape(g.node(MatMul(), self._grouped(q, s.head), keys), s.scores)

    def _grouped(self, x: str, last: int) -> str:
        """The rows of all query heads that share a key-value head as one matrix."""
        s = self.s
        rows = s.heads // s.kv_heads * s.queries
        return x if s.heads == s.kv_heads else self._reshape(x, (s.batch, s.kv_heads, rows, last))

    def _capped(self, scores: str) -> str:
        cap = self.op.softcap
        if cap <= 0:
            return scores
        small = self.g.node(Tanh(), self.g.node(Mul(), scores, self._constant(1 / cap)))
        y: str = self.g.node(Mul(), small, self._constant(cap))
        return y

    def _bias(self, mask: tuple[str, TensorType | None], lengths: str) -> str:
        """Everything that is added to the scores as one value, `""` for nothing."""
        parts = [self._mask_bias(*mask)] if mask[1] is not None else []
        if lengths:
            parts.append(self._length_bias(lengths))
        elif not self.op.sees_all(self.s):
            parts.append(self._constant(np.where(self.op.visible(self.s), 0, -np.inf)))
        found = ""
        for part in parts:
            found = self.g.node(Add(), found, part) if found else part
        return found

    def _mask_bias(self, mask: str, given: TensorType | None) -> str:
        """The mask as numbers, its last dimension filled up."""
        assert given is not None
        if given.dtype is DType.BOOL:
            mask = self._where_seen(mask)
        elif given.dtype is not self.dtype:
            mask = self.g.node(Cast(to=self.dtype), mask)
        missing = self.s.total - given.dims[-1] if given.rank else 0
        if missing <= 0:
            return mask
        pads = self.g.constant([0] * (2 * given.rank - 1) + [missing], DType.INT64)
        y: str = self.g.node(Pad(), mask, pads, self._constant(-np.inf))
        return y

    def _length_bias(self, lengths: str) -> str:
        """0 for keys below the length of their sample that the query sees by its position, from the end of the sample."""
        s, g = self.s, self.g
        count = self._reshape(lengths, (s.batch, 1, 1, 1))
        keys = g.constant(np.arange(s.total).reshape(1, 1, 1, -1), DType.INT64)
        seen = g.node(Less(), keys, count)
        left, right = self.op.window
        offsets = g.constant(np.arange(s.queries).reshape(1, 1, -1, 1) - s.queries, DType.INT64)
        distance = g.node(Sub(), g.node(Add(), count, offsets), keys)
        limits = [
            (GreaterOrEqual(), 0, self.op.is_causal),
            (LessOrEqual(), left, left >= 0),
            (GreaterOrEqual(), -right, right >= 0),
        ]
        for compare, bound, applies in limits:
            if applies:
                seen = g.node(And(), seen, g.node(compare, distance, g.constant(bound, DType.INT64)))
        return self._where_seen(seen)

    def _where_seen(self, seen: str) -> str:
        y: str = self.g.node(Where(), seen, self._constant(0.0), self._constant(-np.inf))
        return y

    def _weights(self, scores: str, bias: str) -> str:
        """The weights; a row whose bias is minus infinity throughout becomes zeros.

        Its softmax leaves out the bias: derivatives of the row are products with its numbers, which would be NaN.
        """
        g = self.g
        greatest = g.node(ReduceMax(), bias, g.constant([-1], DType.INT64))
        masked = g.node(Equal(), greatest, self._constant(-np.inf))
        found = self._softmax(g.node(Add(), scores, g.node(Where(), masked, self._constant(0.0), bias)))
        y: str = g.node(Where(), masked, self._constant(0.0), found)
        return y

    def _softmax(self, scores: str) -> str:
        g, precision = self.g, self.op.softmax_precision or self.dtype
        if precision is self.dtype:
            return g.node(Softmax(axis=-1), scores)
        y: str = g.node(Cast(to=self.dtype), g.node(Softmax(axis=-1), g.node(Cast(to=precision), scores)))
        return y

    def _summed(self, weights: str, v: str) -> str:
        """The weighted sums of the values [batch, heads, queries, value head size]."""
        s, g = self.s, self.g
        if self.value_dtype is not self.dtype:
            v = g.node(Cast(to=self.dtype), v)
        return self._reshape(g.node(MatMul(), self._grouped(weights, s.total), v), (s.batch, s.heads, s.queries, s.v_head))

    def _constant(self, value: float | NDArray[np.float64]) -> str:
        return self.g.constant(np.asarray(value), self.dtype)

    def _reshape(self, x: str, dims: Sequence[int]) -> str:
        y: str = self.g.node(Reshape(allowzero=True), x, self.g.constant(list(dims), DType.INT64))
        return y
