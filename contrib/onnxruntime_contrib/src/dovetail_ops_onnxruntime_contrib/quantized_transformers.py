"""Attention and embeddings of transformers with quantized weights."""

from typing import Any

from dovetail.op import DType, GraphBuilder, TensorType
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnxruntime_contrib._base import BYTES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import node
from dovetail_ops_onnxruntime_contrib._stored import check_row, check_scalars, floats
from dovetail_ops_onnxruntime_contrib.attention import Attention
from dovetail_ops_onnxruntime_contrib.normalizations import EmbedLayerNormalization
from dovetail_ops_onnxruntime_contrib.quantized_products import product

__all__ = ["QAttention", "QEmbedLayerNormalization"]


class QAttention(MicrosoftOperator):
    """Attention of ONNX Runtime with input and weights of 8 bits; everything behind the projection is in floats."""

    inputs = (
        "input: T1", "weight: T2", "bias: T3", "input_scale: T3", "weight_scale: T3", "mask_index?: T4",
        "input_zero_point?: T1", "weight_zero_point?: T2", "past?: T3",
    )  # fmt: skip
    outputs = ("output: T3", "present?: T3")
    types = {"T1": BYTES, "T2": BYTES, "T3": frozenset({DType.FLOAT32}), "T4": frozenset({DType.INT32})}
    num_heads: int
    do_rotary: bool = False
    mask_filter_value: float = -10000.0
    past_present_share_buffer: bool = False
    scale: float = 0.0
    unidirectional: bool = False

    def __post_init__(self) -> None:
        Attention.like(self)

    def infer(self, x: TensorType, weight: TensorType, bias: TensorType, *rest: TensorType | None) -> Any:
        """As Attention's."""
        x_scale, w_scale, mask, x_zero, w_zero, past = (*rest, None, None, None, None)[:6]
        check_scalars(x_scale, x_zero)
        check_row(weight.dims[-1], w_scale, w_zero)
        real = (t.with_dtype(DType.FLOAT32) for t in (x, weight))
        return Attention.like(self).infer(*real, bias, mask, past)

    def compose(self, g: GraphBuilder, x: str, weight: str, bias: str, *rest: str) -> Any:
        """A product of bytes, then as Attention."""
        x_scale, w_scale, mask, x_zero, w_zero, past = (*rest, "", "", "", "")[:6]
        both = product(g, (x, x_scale, x_zero), (weight, w_scale, w_zero), bias)
        op, real = Attention.like(self), g.given(x).with_dtype(DType.FLOAT32)
        return op.attend(g, both, real, op.parts(g.given(weight)), (mask, past, ""))


class QEmbedLayerNormalization(MicrosoftOperator):
    """EmbedLayerNormalization with tables, gamma and beta of 8 bits, each with its scale and zero point."""

    inputs = (
        "input_ids: T1", "segment_ids?: T1", "word_embedding: T2", "position_embedding: T2", "segment_embedding?: T2",
        "gamma: T2", "beta: T2", "mask?: T1",
        "word_embedding_scale: T", "position_embedding_scale: T", "segment_embedding_scale?: T",
        "gamma_scale: T", "beta_scale: T",
        "word_embedding_zero_point: T2", "position_embedding_zero_point: T2", "segment_embedding_zero_point?: T2",
        "gamma_zero_point: T2", "beta_zero_point: T2",
    )  # fmt: skip
    outputs = ("layernorm_out: T", "mask_index_out: T1")
    types = {"T": frozenset({DType.FLOAT32}), "T1": frozenset({DType.INT32}), "T2": BYTES}
    epsilon: float = 1e-12

    def infer(self, ids: TensorType, segments: TensorType | None, *rest: TensorType | None) -> Any:
        """[batch, sequence, hidden], [batch]."""
        check_scalars(*rest[6:])
        words, *tables = (None if t is None else t.with_dtype(DType.FLOAT32) for t in rest[:5])
        assert words is not None
        return self._floats().infer(ids, segments, words, *tables, rest[5], None)[:2]

    def compose(self, g: GraphBuilder, ids: str, segments: str, *rest: str) -> Any:
        """Rows of bytes, which become floats, then as EmbedLayerNormalization."""
        tables, mask, scales, zeros = rest[:5], rest[5], rest[6:11], rest[11:16]

        def real(index: int, rows: str = "") -> str:
            found = node(g, Gather(), tables[index], rows) if rows else tables[index]
            return floats(g, found, scales[index], zeros[index])

        op = self._floats()
        parts = [real(0, ids), real(1, op.rows(g, ids)), *([real(2, segments)] if segments else [])]
        return op.normalized(g, parts, real(3), real(4), g.given(ids), mask)[:2]

    def _floats(self) -> EmbedLayerNormalization:
        return EmbedLayerNormalization(epsilon=self.epsilon)
