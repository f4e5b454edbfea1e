"""Models of one operator: products, recurrent networks and attention, trees, onnxruntime's operators, texts."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from _operators import PLANES, RNG, ROWS, TOKENS, Case, case, floats, pixels, positive, sizes, trees, truths, weights, whole


def products() -> Iterator[Case]:
    """Convolutions, pooling, normalizations, products, quantized ones too."""
    yield case("Conv1x1", "Conv", [PLANES, weights(64, 64, 1, 1), floats(64)], const=[1, 2])
    yield case("Conv3x3", "Conv", [PLANES, weights(64, 64, 3, 3), floats(64)], const=[1, 2], pads=[1] * 4)
    yield case("Conv3x3s2", "Conv", [PLANES, weights(128, 64, 3, 3), floats(128)], const=[1, 2], pads=[1] * 4, strides=[2, 2])
    yield case("Conv7x7", "Conv", [floats(1, 3, 224, 224), weights(64, 3, 7, 7)], const=[1], pads=[3] * 4, strides=[2, 2])
    yield case("Conv_dw3", "Conv", [PLANES, weights(64, 1, 3, 3)], const=[1], group=64, pads=[1] * 4)
    yield case("Conv_dw7", "Conv", [PLANES, weights(64, 1, 7, 7)], const=[1], group=64, pads=[3] * 4)
    yield case("Conv_group", "Conv", [PLANES, weights(64, 16, 3, 3)], const=[1], group=4, pads=[1] * 4)
    yield case("Conv_dil", "Conv", [PLANES, weights(64, 64, 3, 3)], const=[1], pads=[2] * 4, dilations=[2, 2])
    yield case("Conv1d", "Conv", [floats(1, 80, 1000), weights(256, 80, 3)], const=[1], pads=[1, 1])
    yield case("Conv1d_dw", "Conv", [floats(1, 256, 500), weights(256, 1, 31)], const=[1], pads=[15, 15], group=256)
    yield case("Conv3d", "Conv", [floats(1, 16, 16, 32, 32), weights(32, 16, 3, 3, 3)], const=[1], pads=[1] * 6)
    yield case("Conv_w_input", "Conv", [PLANES, weights(64, 64, 3, 3)], pads=[1] * 4)
    yield case(
        "Conv_patch", "Conv", [floats(1, 3, 224, 224), weights(384, 3, 16, 16), floats(384)], const=[1, 2], strides=[16, 16]
    )
    yield case("Conv_group1d", "Conv", [floats(1, 768, 200), weights(768, 48, 128)], const=[1], group=16, pads=[64, 64])
    yield case("ConvT_2", "ConvTranspose", [floats(1, 64, 56, 56), weights(64, 32, 2, 2)], const=[1], strides=[2, 2])
    yield case(
        "ConvT_4", "ConvTranspose", [floats(1, 64, 28, 28), weights(64, 32, 4, 4)], const=[1], strides=[2, 2], pads=[1] * 4
    )
    yield case("ConvT_1d", "ConvTranspose", [floats(1, 256, 100), weights(256, 128, 16)], const=[1], strides=[8], pads=[4, 4])
    yield case(
        "ConvT_dw",
        "ConvTranspose",
        [floats(1, 64, 28, 28), weights(64, 1, 4, 4)],
        const=[1],
        strides=[2, 2],
        pads=[1] * 4,
        group=64,
    )
    yield case(
        "DeformConv", "DeformConv", [floats(1, 32, 28, 28), weights(32, 32, 3, 3), floats(1, 18, 28, 28)], const=[1], pads=[1] * 4
    )
    yield case("MaxPool", "MaxPool", [floats(1, 64, 112, 112)], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    yield case("MaxPool_idx", "MaxPool", [floats(1, 64, 112, 112)], 2, kernel_shape=[2, 2], strides=[2, 2])
    yield case("MaxPool_5", "MaxPool", [floats(1, 128, 20, 20)], kernel_shape=[5, 5], pads=[2] * 4)
    yield case("AveragePool", "AveragePool", [floats(1, 64, 112, 112)], kernel_shape=[2, 2], strides=[2, 2])
    yield case("MaxPool_1d", "MaxPool", [floats(1, 128, 1000)], kernel_shape=[4], strides=[4])
    yield case("MaxPool_u8", "MaxPool", [pixels(1, 64, 56, 56)], kernel_shape=[2, 2], strides=[2, 2])
    yield case("LpPool", "LpPool", [PLANES], kernel_shape=[2, 2], strides=[2, 2])
    yield case("GlobalAveragePool", "GlobalAveragePool", [PLANES])
    yield case("GlobalMaxPool", "GlobalMaxPool", [PLANES])
    yield case("GlobalLpPool", "GlobalLpPool", [PLANES])
    places = np.arange(0, 64 * 28 * 28 * 4, 4).reshape(1, 64, 28, 28).astype(np.int64)
    yield case("MaxUnpool", "MaxUnpool", [floats(1, 64, 28, 28), places], kernel_shape=[2, 2], strides=[2, 2])
    yield case(
        "BatchNorm", "BatchNormalization", [PLANES, positive(64), floats(64), floats(64), positive(64)], const=[1, 2, 3, 4]
    )
    yield case("InstanceNorm", "InstanceNormalization", [PLANES, positive(64), floats(64)], const=[1, 2])
    yield case("GroupNorm", "GroupNormalization", [PLANES, positive(64), floats(64)], const=[1, 2], num_groups=8)
    yield case("LayerNorm", "LayerNormalization", [TOKENS, positive(384), floats(384)], const=[1, 2])
    yield case("RMSNorm", "RMSNormalization", [TOKENS, positive(384)], const=[1], opset=23)
    yield case("LpNorm", "LpNormalization", [ROWS])
    yield case("MVN", "MeanVarianceNormalization", [PLANES])
    yield case("LRN", "LRN", [PLANES], size=5)
    yield case("MatMul", "MatMul", [TOKENS, weights(384, 384)], const=[1])
    yield case("MatMul_big", "MatMul", [floats(128, 1024), weights(1024, 1024)], const=[1])
    yield case("MatMul_batch", "MatMul", [floats(12, 128, 32), floats(12, 32, 128)])
    yield case("MatMul_vec", "MatMul", [floats(1, 1, 1024), weights(1024, 4096)], const=[1])
    yield case("MatMul_i32", "MatMul", [whole(9, 64, 64).astype(np.int32), whole(9, 64, 64).astype(np.int32)])
    yield case("Gemm", "Gemm", [floats(32, 1024), weights(1000, 1024), floats(1000)], const=[1, 2], transB=1)
    yield case("Gemm_dyn", "Gemm", [floats(128, 256), floats(256, 128)])
    yield case("Einsum_qk", "Einsum", [floats(1, 128, 12, 32), floats(1, 128, 12, 32)], equation="bqhd,bkhd->bhqk")
    yield case("Einsum_ij", "Einsum", [floats(128, 256), floats(256, 64)], equation="ij,jk->ik")
    yield case("Einsum_outer", "Einsum", [floats(64), floats(128)], equation="i,j->ij")
    yield case("Einsum_bilin", "Einsum", [floats(64, 128), floats(32, 128, 128), floats(64, 128)], equation="bi,oij,bj->bo")
    yield case("Det", "Det", [floats(64, 8, 8)])
    yield case(
        "MatMulInteger",
        "MatMulInteger",
        [pixels(128, 384), RNG.integers(-128, 128, (384, 384)).astype(np.int8), np.array(128, np.uint8)],
        const=[1, 2],
    )
    yield case(
        "ConvInteger",
        "ConvInteger",
        [pixels(1, 64, 56, 56), RNG.integers(-128, 128, (64, 64, 3, 3)).astype(np.int8), np.array(128, np.uint8)],
        const=[1, 2],
        pads=[1] * 4,
    )
    sc = np.array(0.02, np.float32)
    z = np.array(128, np.uint8)
    yield case("QuantizeLinear", "QuantizeLinear", [PLANES, sc, z], const=[1, 2])
    yield case("DequantizeLinear", "DequantizeLinear", [pixels(1, 64, 56, 56), sc, z], const=[1, 2])
    yield case("DynamicQuantizeLinear", "DynamicQuantizeLinear", [TOKENS], 3)
    yield case(
        "QLinearConv",
        "QLinearConv",
        [pixels(1, 64, 56, 56), sc, z, RNG.integers(-128, 128, (64, 64, 3, 3)).astype(np.int8), sc, np.array(0, np.int8), sc, z],
        const=range(1, 8),
        pads=[1] * 4,
    )
    yield case(
        "QLinearMatMul",
        "QLinearMatMul",
        [pixels(128, 384), sc, z, RNG.integers(-128, 128, (384, 384)).astype(np.int8), sc, np.array(0, np.int8), sc, z],
        const=range(1, 8),
    )


def sequences() -> Iterator[Case]:
    """Recurrent networks, attention, transforms of sound, losses, random numbers."""
    for op, g in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        yield case(
            op, op, [floats(50, 1, 128), weights(1, g * 128, 128), weights(1, g * 128, 128)], 2, const=[1, 2], hidden_size=128
        )
        yield case(
            op + "_bi",
            op,
            [floats(50, 4, 128), weights(2, g * 128, 128), weights(2, g * 128, 128), floats(2, 2 * g * 128) * 0.1],
            2,
            const=[1, 2, 3],
            hidden_size=128,
            direction="bidirectional",
        )
        yield case(
            op + "_1",
            op,
            [floats(1, 1, 128), weights(1, g * 128, 128), weights(1, g * 128, 128), None, None, floats(1, 1, 128)],
            2,
            const=[1, 2],
            hidden_size=128,
        )
    yield case(
        "LSTM_len",
        "LSTM",
        [floats(50, 4, 128), weights(1, 512, 128), weights(1, 512, 128), None, np.array([50, 40, 30, 20], np.int32)],
        2,
        const=[1, 2],
        hidden_size=128,
    )
    yield case(
        "GRU_lbr",
        "GRU",
        [floats(50, 1, 128), weights(1, 384, 128), weights(1, 384, 128)],
        2,
        const=[1, 2],
        hidden_size=128,
        linear_before_reset=1,
    )
    q = floats(1, 12, 128, 32)
    yield case("Attention", "Attention", [q, floats(1, 12, 128, 32), floats(1, 12, 128, 32)], opset=23)
    yield case("Attention_causal", "Attention", [q, floats(1, 12, 128, 32), floats(1, 12, 128, 32)], opset=23, is_causal=1)
    yield case(
        "Attention_mask", "Attention", [q, floats(1, 12, 128, 32), floats(1, 12, 128, 32), truths(1, 1, 128, 128)], opset=23
    )
    yield case("Attention_gqa", "Attention", [q, floats(1, 4, 128, 32), floats(1, 4, 128, 32)], opset=23)
    yield case(
        "Attention_past",
        "Attention",
        [floats(1, 12, 1, 64), floats(1, 12, 1, 64), floats(1, 12, 1, 64), None, floats(1, 12, 255, 64), floats(1, 12, 255, 64)],
        3,
        opset=23,
    )
    yield case("RotaryEmbedding", "RotaryEmbedding", [floats(1, 12, 128, 64), floats(1, 128, 32), floats(1, 128, 32)], opset=23)
    yield case("DFT", "DFT", [floats(8, 512, 1), None, np.array(1, np.int64)], const=[2], onesided=1)
    yield case("DFT_400", "DFT", [floats(100, 400, 1), None, np.array(1, np.int64)], const=[2], onesided=1)
    yield case("STFT", "STFT", [floats(1, 16000, 1), np.array(160, np.int64), np.hanning(400).astype(np.float32)], const=[1, 2])
    yield case(
        "STFT_512", "STFT", [floats(1, 16000, 1), np.array(160, np.int64), np.hanning(512).astype(np.float32)], const=[1, 2]
    )
    yield case(
        "MelWeightMatrix",
        "MelWeightMatrix",
        [
            sizes(80).reshape(()),
            sizes(512).reshape(()),
            sizes(16000).reshape(()),
            np.array(0, np.float32),
            np.array(8000, np.float32),
        ],
    )
    yield case("SoftmaxCE", "SoftmaxCrossEntropyLoss", [floats(128, 1000), whole(1000, 128)])
    yield case("NLL", "NegativeLogLikelihoodLoss", [floats(128, 1000), whole(1000, 128)])
    yield case("RandomNormal", "RandomNormalLike", [ROWS])
    yield case("Bernoulli", "Bernoulli", [positive(64, 1024) - 0.5])
    yield case("Multinomial", "Multinomial", [floats(8, 1000)], sample_size=10)


def learning() -> Iterator[Case]:
    """Trees, support vectors, tables: the domain ai.onnx.ml."""
    nodes, leaves = trees(100, 6, 1)
    regression = dict(nodes, **{"target_" + k: v for k, v in leaves.items()}, n_targets=1)
    for n in (1, 100, 10000):
        yield case(f"TreeReg_{n}", "TreeEnsembleRegressor", [floats(n, 30)], domain="ai.onnx.ml", **regression)
    nodes, leaves = trees(90, 5, 3)
    classes = dict(nodes, **{"class_" + k: v for k, v in leaves.items()}, classlabels_int64s=[0, 1, 2], post_transform="SOFTMAX")
    for n in (1, 100, 10000):
        yield case(f"TreeCls_{n}", "TreeEnsembleClassifier", [floats(n, 30)], 2, domain="ai.onnx.ml", **classes)
    for n in (1, 1000):
        yield case(
            f"LinearClassifier_{n}",
            "LinearClassifier",
            [floats(n, 30)],
            2,
            domain="ai.onnx.ml",
            coefficients=[float(x) for x in floats(90)],
            intercepts=[0.0, 0.0, 0.0],
            classlabels_ints=[0, 1, 2],
            post_transform="SOFTMAX",
            multi_class=1,
        )
        yield case(f"Scaler_{n}", "Scaler", [floats(n, 30)], domain="ai.onnx.ml", offset=[0.5] * 30, scale=[2.0] * 30)
        yield case(
            f"SVMReg_{n}",
            "SVMRegressor",
            [floats(n, 30)],
            domain="ai.onnx.ml",
            coefficients=[float(x) for x in floats(200)],
            kernel_params=[0.1, 0.0, 3.0],
            kernel_type="RBF",
            n_supports=200,
            rho=[0.1],
            support_vectors=[float(x) for x in floats(6000)],
        )
        yield case(
            f"SVMCls_{n}",
            "SVMClassifier",
            [floats(n, 30)],
            2,
            domain="ai.onnx.ml",
            classlabels_ints=[0, 1, 2],
            coefficients=[float(x) for x in floats(400)],
            kernel_params=[0.1, 0.0, 3.0],
            kernel_type="RBF",
            vectors_per_class=[70, 70, 60],
            rho=[0.1, 0.2, 0.3],
            support_vectors=[float(x) for x in floats(6000)],
        )
        yield case(f"Normalizer_{n}", "Normalizer", [floats(n, 30)], domain="ai.onnx.ml", norm="L2")
        yield case(f"OneHotEncoder_{n}", "OneHotEncoder", [whole(20, n, 1)], domain="ai.onnx.ml", cats_int64s=list(range(20)))
        yield case(
            f"LabelEncoder_{n}",
            "LabelEncoder",
            [whole(20, n)],
            domain="ai.onnx.ml",
            keys_int64s=list(range(20)),
            values_int64s=list(range(20, 40)),
        )
        yield case(
            f"Imputer_{n}",
            "Imputer",
            [floats(n, 30)],
            domain="ai.onnx.ml",
            imputed_value_floats=[0.0] * 30,
            replaced_value_float=float("nan"),
        )
        yield case(
            f"LabelEncoder_s_{n}",
            "LabelEncoder",
            [np.array([f"k{i % 20}" for i in range(n)], object)],
            domain="ai.onnx.ml",
            keys_strings=[f"k{i}" for i in range(20)],
            values_int64s=list(range(20)),
        )


def microsoft() -> Iterator[Case]:
    """Operators of onnxruntime: the domain com.microsoft."""
    sc = np.array(0.02, np.float32)
    z = np.array(128, np.uint8)
    yield case(
        "SkipLayerNorm",
        "SkipLayerNormalization",
        [TOKENS, TOKENS.copy(), positive(384), floats(384), floats(384)],
        const=[2, 3, 4],
        domain="com.microsoft",
    )
    yield case("FastGelu", "FastGelu", [TOKENS, floats(384)], const=[1], domain="com.microsoft")
    yield case("BiasGelu", "BiasGelu", [TOKENS, floats(384)], const=[1], domain="com.microsoft")
    yield case("MsGelu", "Gelu", [TOKENS], domain="com.microsoft")
    yield case(
        "MsAttention", "Attention", [TOKENS, weights(384, 1152), floats(1152)], const=[1, 2], num_heads=12, domain="com.microsoft"
    )
    yield case("MHA", "MultiHeadAttention", [TOKENS, TOKENS.copy(), TOKENS.copy()], num_heads=12, domain="com.microsoft")
    yield case("FusedMatMul", "FusedMatMul", [TOKENS, weights(384, 384)], const=[1], transB=1, alpha=0.5, domain="com.microsoft")
    yield case("QuickGelu", "QuickGelu", [TOKENS], domain="com.microsoft")
    yield case(
        "EmbedLN",
        "EmbedLayerNormalization",
        [
            whole(1000, 1, 128).astype(np.int32),
            whole(2, 1, 128).astype(np.int32),
            floats(1000, 384),
            floats(512, 384),
            floats(2, 384),
            positive(384),
            floats(384),
        ],
        2,
        const=range(2, 7),
        domain="com.microsoft",
    )
    yield case(
        "MsRotary",
        "RotaryEmbedding",
        [floats(1, 12, 128, 64), np.arange(128, dtype=np.int64)[None], floats(512, 32), floats(512, 32)],
        const=[2, 3],
        domain="com.microsoft",
    )
    yield case(
        "GQA",
        "GroupQueryAttention",
        [
            floats(1, 1, 768),
            floats(1, 1, 256),
            floats(1, 1, 256),
            floats(1, 4, 300, 64),
            floats(1, 4, 300, 64),
            np.array([299], np.int32),
            np.array(300, np.int32),
        ],
        3,
        num_heads=12,
        kv_num_heads=4,
        domain="com.microsoft",
    )
    yield case(
        "MatMulNBits",
        "MatMulNBits",
        [floats(1, 1, 1024), pixels(4096, 32, 16), positive(4096 * 32)],
        const=[1, 2],
        K=1024,
        N=4096,
        bits=4,
        block_size=32,
        domain="com.microsoft",
    )
    yield case(
        "MatMulNBits_128",
        "MatMulNBits",
        [floats(1, 128, 1024), pixels(1024, 32, 16), positive(1024 * 32)],
        const=[1, 2],
        K=1024,
        N=1024,
        bits=4,
        block_size=32,
        domain="com.microsoft",
    )
    yield case(
        "DynQuantMatMul",
        "DynamicQuantizeMatMul",
        [TOKENS, RNG.integers(-128, 128, (384, 384)).astype(np.int8), positive(384) * 0.01],
        const=[1, 2],
        domain="com.microsoft",
    )
    yield case(
        "QAttention",
        "QAttention",
        [
            pixels(1, 128, 384),
            RNG.integers(-128, 128, (384, 1152)).astype(np.int8),
            floats(1152),
            sc,
            np.array(0.01, np.float32),
            None,
            z,
            np.array(0, np.int8),
        ],
        const=range(1, 8),
        num_heads=12,
        domain="com.microsoft",
    )
    yield case(
        "QLinearAdd",
        "QLinearAdd",
        [pixels(1, 64, 56, 56), sc, z, pixels(1, 64, 56, 56), sc, z, sc, z],
        const=[1, 2, 4, 5, 6, 7],
        domain="com.microsoft",
    )
    yield case(
        "QLinearSigmoid", "QLinearSigmoid", [pixels(1, 64, 56, 56), sc, z, sc, z], const=range(1, 5), domain="com.microsoft"
    )
    yield case(
        "QLinearGAP",
        "QLinearGlobalAveragePool",
        [pixels(1, 64, 56, 56), sc, z, sc, z],
        const=range(1, 5),
        channels_last=0,
        domain="com.microsoft",
    )
    yield case("NhwcMaxPool", "NhwcMaxPool", [pixels(1, 56, 56, 64)], kernel_shape=[2, 2], strides=[2, 2], domain="com.microsoft")


def texts() -> Iterator[Case]:
    """Operators on strings."""
    yield case("StringNormalizer", "StringNormalizer", [np.array(["Hello", "world"] * 50, object)], case_change_action="LOWER")
    yield case("StringConcat", "StringConcat", [np.array(["Hello", "world"] * 500, object), np.array(["x", "y"] * 500, object)])
    yield case("StringSplit", "StringSplit", [np.array(["a b c", "d e f"] * 500, object)], 2, delimiter=" ")
    yield case("RegexFullMatch", "RegexFullMatch", [np.array(["a1", "d"] * 500, object)], pattern="[a-z]\\d")
    yield case(
        "TfIdf",
        "TfIdfVectorizer",
        [whole(50, 1, 200).astype(np.int32)],
        mode="TF",
        max_gram_length=2,
        max_skip_count=0,
        min_gram_length=1,
        ngram_counts=[0, 50],
        ngram_indexes=list(range(150)),
        pool_int64s=list(range(50)) + [int(x) for x in np.stack([np.arange(100) // 10, np.arange(100) % 10], 1).ravel()],
    )
