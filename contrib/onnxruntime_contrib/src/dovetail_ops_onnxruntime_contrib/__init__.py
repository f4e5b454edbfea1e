"""Operators of ONNX Runtime that exported transformers use: domain `com.microsoft`. Loaded when a model has one."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail_ops_onnxruntime_contrib.activations import BiasGelu, FastGelu, Gelu, QuickGelu
from dovetail_ops_onnxruntime_contrib.attention import Attention, MultiHeadAttention
from dovetail_ops_onnxruntime_contrib.fused import FusedConv, FusedMatMul
from dovetail_ops_onnxruntime_contrib.group_query_attention import GroupQueryAttention
from dovetail_ops_onnxruntime_contrib.mat_mul_n_bits import MatMulNBits
from dovetail_ops_onnxruntime_contrib.normalizations import (
    EmbedLayerNormalization,
    SimplifiedLayerNormalization,
    SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
)
from dovetail_ops_onnxruntime_contrib.quantized import (
    DequantizeLinear,
    QLinearAdd,
    QLinearAveragePool,
    QLinearGlobalAveragePool,
    QLinearMul,
    QuantizeLinear,
)
from dovetail_ops_onnxruntime_contrib.rotary_embedding import RotaryEmbedding

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry
    from dovetail.op import Operator

OPERATORS: "tuple[type[Operator], ...]" = (
    Attention,
    BiasGelu,
    DequantizeLinear,
    EmbedLayerNormalization,
    FastGelu,
    FusedConv,
    FusedMatMul,
    Gelu,
    GroupQueryAttention,
    MatMulNBits,
    MultiHeadAttention,
    QLinearAdd,
    QLinearAveragePool,
    QLinearGlobalAveragePool,
    QLinearMul,
    QuantizeLinear,
    QuickGelu,
    RotaryEmbedding,
    SimplifiedLayerNormalization,
    SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
)

__all__ = ["OPERATORS", "dovetail_api", "dovetail_register_ops", *(operator.__name__ for operator in OPERATORS)]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators of the domain: SimplifiedLayerNormalization is in the standard one."""
    for operator in OPERATORS:
        if (operator.domain or "ai.onnx") == domain:
            registry.add(operator)
