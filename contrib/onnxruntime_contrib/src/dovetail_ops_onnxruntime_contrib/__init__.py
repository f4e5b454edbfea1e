"""Operators of ONNX Runtime that exported transformers use: domain `com.microsoft`. Loaded when a model has one."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl
from dovetail_ops_onnxruntime_contrib.activations import BiasGelu, FastGelu, Gelu, QuickGelu
from dovetail_ops_onnxruntime_contrib.attention import Attention, MultiHeadAttention
from dovetail_ops_onnxruntime_contrib.beam_search import BeamSearch, WhisperBeamSearch
from dovetail_ops_onnxruntime_contrib.decoder_masked_attention import DecoderMaskedMultiHeadAttention
from dovetail_ops_onnxruntime_contrib.diffusion import BiasAdd, BiasSplitGelu, GroupNorm, NhwcConv, SkipGroupNorm
from dovetail_ops_onnxruntime_contrib.fused import FusedConv, FusedGemm, FusedMatMul, TransposeMatMul
from dovetail_ops_onnxruntime_contrib.gather_block_quantized import GatherBlockQuantized
from dovetail_ops_onnxruntime_contrib.generation import NGramRepeatBlock
from dovetail_ops_onnxruntime_contrib.greedy_search import GreedySearch, Sampling
from dovetail_ops_onnxruntime_contrib.group_query_attention import GroupQueryAttention
from dovetail_ops_onnxruntime_contrib.linear_algebra import CDist, Inverse
from dovetail_ops_onnxruntime_contrib.linear_attention import (
    CausalConvWithState,
    GatedRMSNorm,
    LinearAttention,
    LinearAttentionGate,
)
from dovetail_ops_onnxruntime_contrib.mat_mul_bnb4 import MatMulBnb4
from dovetail_ops_onnxruntime_contrib.mat_mul_n_bits import MatMulNBits
from dovetail_ops_onnxruntime_contrib.mixtures import MoE, QMoE
from dovetail_ops_onnxruntime_contrib.normalizations import (
    EmbedLayerNormalization,
    SimplifiedLayerNormalization,
    SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
)
from dovetail_ops_onnxruntime_contrib.quantized import DequantizeLinear, QLinearAdd, QLinearMul, QuantizeLinear
from dovetail_ops_onnxruntime_contrib.quantized_functions import (
    QLinearConcat,
    QLinearLeakyRelu,
    QLinearSigmoid,
    QLinearSoftmax,
    QLinearWhere,
)
from dovetail_ops_onnxruntime_contrib.quantized_pooling import NhwcMaxPool, QLinearAveragePool, QLinearGlobalAveragePool
from dovetail_ops_onnxruntime_contrib.quantized_products import (
    DynamicQuantizeMatMul,
    MatMulIntegerToFloat,
    QGemm,
    QLinearConv,
)
from dovetail_ops_onnxruntime_contrib.quantized_transformers import QAttention, QEmbedLayerNormalization
from dovetail_ops_onnxruntime_contrib.recurrent import DynamicQuantizeLSTM
from dovetail_ops_onnxruntime_contrib.relative_position_bias import RelativePositionBias
from dovetail_ops_onnxruntime_contrib.rotary_embedding import MRotaryEmbedding, RotaryEmbedding
from dovetail_ops_onnxruntime_contrib.superseded import (
    ConvTransposeWithDynamicPads,
    ExpandDims,
    GatherND,
    GridSample,
    Pad,
    Range,
    Trilu,
    Unique,
)
from dovetail_ops_onnxruntime_contrib.text import Tokenizer
from dovetail_ops_onnxruntime_contrib.vision import CropAndResize

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry
    from dovetail.op import Operator

OPERATORS: "tuple[type[Operator], ...]" = (
    Attention,
    BeamSearch,
    BiasAdd,
    BiasGelu,
    BiasSplitGelu,
    CDist,
    CausalConvWithState,
    ConvTransposeWithDynamicPads,
    CropAndResize,
    DecoderMaskedMultiHeadAttention,
    DequantizeLinear,
    DynamicQuantizeLSTM,
    DynamicQuantizeMatMul,
    EmbedLayerNormalization,
    ExpandDims,
    FastGelu,
    FusedConv,
    FusedGemm,
    FusedMatMul,
    GatedRMSNorm,
    GatherBlockQuantized,
    GatherND,
    Gelu,
    GreedySearch,
    GridSample,
    GroupNorm,
    GroupQueryAttention,
    Inverse,
    LinearAttention,
    LinearAttentionGate,
    MRotaryEmbedding,
    MatMulBnb4,
    MatMulIntegerToFloat,
    MatMulNBits,
    MoE,
    MultiHeadAttention,
    NGramRepeatBlock,
    NhwcConv,
    NhwcMaxPool,
    Pad,
    QAttention,
    QEmbedLayerNormalization,
    QGemm,
    QLinearAdd,
    QLinearAveragePool,
    QLinearConcat,
    QLinearConv,
    QLinearGlobalAveragePool,
    QLinearLeakyRelu,
    QLinearMul,
    QLinearSigmoid,
    QLinearSoftmax,
    QLinearWhere,
    QMoE,
    QuantizeLinear,
    QuickGelu,
    Range,
    RelativePositionBias,
    RotaryEmbedding,
    Sampling,
    SimplifiedLayerNormalization,
    SkipGroupNorm,
    SkipLayerNormalization,
    SkipSimplifiedLayerNormalization,
    Tokenizer,
    TransposeMatMul,
    Trilu,
    Unique,
    WhisperBeamSearch,
)

__all__ = ["OPERATORS", "dovetail_api", "dovetail_register_ops", *(operator.__name__ for operator in OPERATORS)]

dovetail_api = "1.0"


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the operators of the domain: SimplifiedLayerNormalization is in the standard one."""
    for operator in OPERATORS:
        if (operator.domain or "ai.onnx") == domain:
            registry.add(operator)
