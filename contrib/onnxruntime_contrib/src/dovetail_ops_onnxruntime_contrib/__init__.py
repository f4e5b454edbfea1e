"""Operators of ONNX Runtime that exported transformers use: domain `com.microsoft`, imported when a model has one."""

from typing import TYPE_CHECKING

from dovetail.hookspecs import hookimpl

if TYPE_CHECKING:
    from dovetail.hookspecs import OpRegistry

__all__ = ["dovetail_api", "dovetail_register_ops"]

dovetail_api = "1.0"

FAMILIES = {
    "activations": ("BiasGelu", "FastGelu", "Gelu", "QuickGelu"),
    "attention": ("Attention", "MultiHeadAttention"),
    "beam_search": ("BeamSearch", "WhisperBeamSearch"),
    "decoder_masked_attention": ("DecoderMaskedMultiHeadAttention",),
    "diffusion": ("BiasAdd", "BiasSplitGelu", "GroupNorm", "NhwcConv", "SkipGroupNorm"),
    "fused": ("FusedConv", "FusedGemm", "FusedMatMul", "TransposeMatMul"),
    "generation": ("NGramRepeatBlock",),
    "greedy_search": ("GreedySearch", "Sampling"),
    "hashing": ("MurmurHash3",),
    "linear_algebra": ("CDist", "Inverse"),
    "linear_attention": ("CausalConvWithState", "GatedRMSNorm", "LinearAttention", "LinearAttentionGate"),
    "mixtures": ("MoE", "QMoE"),
    "normalizations": ("EmbedLayerNormalization", "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"),
    "quantized": ("DequantizeLinear", "QLinearAdd", "QLinearMul", "QuantizeLinear"),
    "quantized_functions": ("QLinearConcat", "QLinearLeakyRelu", "QLinearSigmoid", "QLinearSoftmax", "QLinearWhere"),
    "quantized_pooling": ("NhwcMaxPool", "QLinearAveragePool", "QLinearGlobalAveragePool"),
    "quantized_products": ("DynamicQuantizeMatMul", "MatMulIntegerToFloat", "QGemm", "QLinearConv"),
    "quantized_transformers": ("QAttention", "QEmbedLayerNormalization"),
    "recurrent": ("DynamicQuantizeLSTM",),
    "rotary_embedding": ("MRotaryEmbedding", "RotaryEmbedding"),
    "superseded": ("ConvTransposeWithDynamicPads", "ExpandDims", "GatherND", "GridSample", "Pad", "Range", "Trilu", "Unique"),
    "text": ("Tokenizer",),
    "vision": ("CropAndResize",),
}
"""The operators of modules that define several."""


@hookimpl
def dovetail_register_ops(registry: "OpRegistry", domain: str) -> None:
    """Register the modules by the operators that they define: two normalizations are in the standard domain."""
    if domain == "com.microsoft":
        registry.add_package(__name__, FAMILIES)
    else:
        from dovetail_ops_onnxruntime_contrib.normalizations import LayerNormalization_1, SimplifiedLayerNormalization

        registry.add(SimplifiedLayerNormalization)
        registry.add(LayerNormalization_1)
