"""Models of one operator in the sizes of detectors, segmentation, flow, audio, speech, language models and graphs."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from _operators import RNG, Array, Case, case, floats, pixels, positive, sizes, truths, weights, whole


def _places(*shape: int) -> Array:
    return (RNG.random((*shape, 2)) * 2.1 - 1.05).astype(np.float32)


def _flow(h: int, w: int, spread: float) -> Array:
    """A grid in the order of the pixels, each moved a little."""
    y, x = np.meshgrid(np.linspace(-1, 1, h), np.linspace(-1, 1, w), indexing="ij")
    moved = np.stack((x, y), -1)[None] + RNG.standard_normal((1, h, w, 2)) * spread
    return moved.astype(np.float32)


def _boxes(count: int, extent: float = 600.0) -> Array:
    corner = RNG.random((1, count, 2)) * extent
    return np.concatenate([corner, corner + RNG.random((1, count, 2)) * 90 + 8], 2).astype(np.float32)


def vision() -> Iterator[Case]:
    """Detection heads, deformable attention, flow, segmentation."""
    zeros = {"padding_mode": "zeros", "align_corners": 0}
    for side in (80, 40, 20, 10):
        image = floats(8, 32, side, side)
        yield case(f"GridSample_level{side}", "GridSample", [image, _places(8, 300, 4)], mode="linear", **zeros)
    yield case("GridSample_encoder", "GridSample", [floats(8, 32, 40, 40), _places(8, 2100, 4)], mode="linear", **zeros)
    flow = _flow(120, 160, 0.05)
    yield case("GridSample_flow", "GridSample", [floats(1, 32, 120, 160), flow], mode="linear", padding_mode="border")
    yield case("GridSample_rgb", "GridSample", [floats(1, 3, 240, 320), _flow(240, 320, 0.02)], mode="linear", **zeros)
    pyramid = [floats(1200, 1, 30, 40), _places(1200, 9, 9)]
    yield case("GridSample_raft", "GridSample", pyramid, mode="linear", padding_mode="zeros", align_corners=1)
    yield case("GridSample_stereo", "GridSample", [floats(2400, 1, 1, 80), _places(2400, 9, 1)], mode="linear", align_corners=1)
    yield case("GridSample_3d", "GridSample", [floats(1, 8, 16, 32, 32), floats(1, 16, 32, 32, 3)], mode="linear", **zeros)
    yield case("GridSample_u", "GridSample", [floats(1, 1, 512, 512), _flow(224, 224, 0.01)], mode="nearest", **zeros)
    half = {"mode": "linear", "coordinate_transformation_mode": "half_pixel"}
    yield case("Resize_full", "Resize", [floats(1, 21, 65, 65), None, None, sizes(1, 21, 513, 513)], const=[3], **half)
    yield case("Resize_150", "Resize", [floats(1, 150, 32, 32), None, None, sizes(1, 150, 128, 128)], const=[3], **half)
    yield case("Resize_mask", "Resize", [floats(1, 1, 128, 128), None, None, sizes(1, 1, 500, 375)], const=[3], **half)
    yield case("Resize_down", "Resize", [floats(1, 3, 480, 640), None, None, sizes(1, 3, 320, 320)], const=[3], **half)
    yield case("Resize_odd", "Resize", [floats(1, 96, 27, 33), None, None, sizes(1, 96, 54, 66)], const=[3], mode="nearest")
    yield case("Resize_3d", "Resize", [floats(1, 16, 8, 16, 16), None, np.array([1, 1, 2, 2, 2], np.float32)], const=[2], **half)
    yield case("Resize_1d", "Resize", [floats(1, 192, 200), None, np.array([1, 1, 4], np.float32)], const=[2], mode="nearest")
    yield case("Resize_1d_linear", "Resize", [floats(1, 192, 200), None, np.array([1, 1, 4], np.float32)], const=[2], **half)
    yield case("ArgMax_full", "ArgMax", [floats(1, 21, 513, 513)], axis=1, keepdims=0)
    yield case("ArgMax_150", "ArgMax", [floats(1, 150, 128, 128)], axis=1, keepdims=0)
    yield case("ArgMax_2", "ArgMax", [floats(1, 2, 512, 512)], axis=1)
    yield case("ArgMax_yolo", "ArgMax", [floats(1, 8400, 80)], axis=-1)
    yield case("ArgMax_yolo_c", "ArgMax", [floats(1, 80, 8400)], axis=1)
    yield case("ReduceMax_neighbours", "ReduceMax", [floats(1, 64, 1024, 20), sizes(-1)], const=[1], keepdims=0)
    yield case("ReduceMax_yolo", "ReduceMax", [floats(1, 8400, 80), sizes(-1)], const=[1], keepdims=0)
    yield case("TopK_proposals", "TopK", [floats(1, 100000), sizes(1000)], 2, const=[1])
    yield case("TopK_queries", "TopK", [floats(1, 80 * 300), sizes(300)], 2, const=[1])
    yield case("TopK_class", "TopK", [floats(1, 1000), sizes(5)], 2, const=[1])
    yield case("TopK_1", "TopK", [floats(8, 32000), sizes(1)], 2, const=[1])
    yield case("TopK_50", "TopK", [floats(1, 50257), sizes(50)], 2, const=[1])
    yield case("TopK_experts", "TopK", [floats(256, 8), sizes(2)], 2, const=[1])
    yield case("TopK_experts64", "TopK", [floats(128, 64), sizes(6)], 2, const=[1])
    yield case("TopK_axis", "TopK", [floats(1, 300, 91), sizes(20)], 2, const=[1], axis=1)
    limit = [sizes(300), np.array([0.6], np.float32)]
    for name, count, classes, floor in (
        ("1k", 1000, 80, 0.25),
        ("8k", 8400, 80, 0.98),
        ("8k_many", 8400, 80, 0.8),
        ("25k_1", 25200, 1, 0.5),
        ("100k_1", 100000, 1, 0.9),
    ):
        scores = RNG.random((1, classes, count)).astype(np.float32)
        inputs = [_boxes(count), scores, *limit, np.array([floor], np.float32)]
        yield case(f"NMS_{name}", "NonMaxSuppression", inputs, const=[2, 3, 4])
    yield case("NMS_rpn", "NonMaxSuppression", [_boxes(1000), positive(1, 1, 1000), sizes(1000), np.float32([0.7])], const=[2, 3])
    rois = _boxes(100, 700)[0]
    align = {"output_height": 7, "output_width": 7, "sampling_ratio": 2}
    yield case("RoiAlign_p2", "RoiAlign", [floats(1, 64, 200, 200), rois, np.zeros(100, np.int64)], spatial_scale=0.25, **align)
    yield case("RoiAlign_0", "RoiAlign", [floats(1, 64, 50, 50), rois, np.zeros(100, np.int64)], output_height=7, output_width=7)
    yield case(
        "RoiAlign_mask",
        "RoiAlign",
        [floats(1, 256, 50, 50), rois[:20], np.zeros(20, np.int64)],
        **{**align, "output_height": 14, "output_width": 14},
        spatial_scale=0.0625,
    )
    yield case("DepthToSpace_3", "DepthToSpace", [floats(1, 27, 128, 128)], blocksize=3, mode="CRD")
    yield case("GatherElements_boxes", "GatherElements", [floats(1, 8400, 4), np.repeat(whole(8400, 1, 300, 1), 4, 2)], axis=1)
    yield case(
        "GatherElements_tokens", "GatherElements", [floats(1, 8400, 256), np.repeat(whole(8400, 1, 300, 1), 256, 2)], axis=1
    )
    yield case("GatherElements_class", "GatherElements", [floats(8, 128, 1000), whole(1000, 8, 128, 1)], axis=2)
    rows = np.stack((np.zeros((1, 300), np.int64), whole(8400, 1, 300)), -1)
    yield case("GatherND_boxes", "GatherND", [floats(1, 8400, 4), rows])
    yield case("GatherND_batch", "GatherND", [floats(8, 128, 256), whole(128, 8, 20, 1)], batch_dims=1)
    yield case("Pad_reflect_big", "Pad", [floats(1, 32, 128, 128), sizes(0, 0, 4, 4, 0, 0, 4, 4)], const=[1], mode="reflect")
    yield case("Pad_reflect_1d", "Pad", [floats(1, 16000), sizes(0, 200, 0, 200)], const=[1], mode="reflect")
    yield case("Pad_window", "Pad", [floats(1, 56, 56, 96), sizes(0, 0, 0, 0, 0, 3, 3, 0)], const=[1])
    yield case("Pad_wrap", "Pad", [floats(1, 32, 64, 64), sizes(0, 0, 2, 2, 0, 0, 2, 2)], const=[1], mode="wrap")
    yield case("Shift", "Concat", [floats(1, 53, 56, 96), floats(1, 3, 56, 96)], axis=1)
    yield case("Window_partition", "Transpose", [floats(1, 8, 7, 8, 7, 96)], perm=[0, 1, 3, 2, 4, 5])
    yield case("Normalize_u8", "Cast", [pixels(1, 480, 640, 3)], to=1)
    yield case("Softmax_21", "Softmax", [floats(1, 21, 513, 513)], axis=1)
    yield case("Softmax_dfl", "Softmax", [floats(1, 16, 4, 8400)], axis=1)
    yield case("LpNormalization_c", "LpNormalization", [floats(1, 64, 56, 56)], axis=1)
    yield case("ReduceL2_emb", "ReduceL2", [floats(64, 512), sizes(-1)], const=[1])
    yield case("CumSum_2d", "CumSum", [floats(1, 100, 100), np.array(1, np.int64)], const=[1])
    yield case("InstanceNorm_big", "InstanceNormalization", [floats(1, 32, 128, 128), positive(32), floats(32)], const=[1, 2])


def speech() -> Iterator[Case]:
    """Audio, speech and time series."""
    window = np.hanning(400).astype(np.float32)
    yield case("STFT_whisper", "STFT", [floats(1, 48000), np.array(160), window, np.array(400)], const=[1, 2, 3])
    window = np.hanning(1024).astype(np.float32)
    yield case("STFT_1024", "STFT", [floats(1, 44100), np.array(256), window, np.array(1024)], const=[1, 2, 3])
    yield case("DFT_512", "DFT", [floats(1, 200, 512, 1), None, np.array(2)], const=[2], onesided=1, opset=20)
    yield case("DFT_inverse", "DFT", [floats(1, 200, 512, 2), None, np.array(2)], const=[2], inverse=1, opset=20)
    yield case("DFT_2d", "DFT", [floats(1, 64, 64, 2), None, np.array(1)], const=[2], opset=20)
    yield case("CumSum_durations", "CumSum", [whole(9, 1, 1, 200).astype(np.float32), np.array(2)], const=[1])
    yield case("CumSum_f0", "CumSum", [floats(1, 24000, 9), np.array(1)], const=[1])
    yield case("CumSum_exclusive", "CumSum", [whole(2, 256, 64), np.array(0)], const=[1], exclusive=1)
    yield case("CumSum_reverse", "CumSum", [floats(16, 1, 512), np.array(2)], const=[1], reverse=1)
    yield case("Gather_frames", "Gather", [floats(1, 192, 100), np.repeat(np.arange(100), 6)], axis=2)
    yield case("Gather_rows", "Gather", [floats(1, 100, 192), np.repeat(np.arange(100), 6)], axis=1)
    yield case("Range_f", "Range", [np.float32(0), np.float32(2000), np.float32(1)])
    yield case("Range_tokens", "Range", [np.array(0), np.array(128), np.array(1)])
    yield case("Less_mask", "Less", [np.arange(512)[None], whole(512, 8, 1)])
    yield case("Tile_noise", "Tile", [floats(1, 1, 600), sizes(1, 192, 1)], const=[1])
    yield case("Sin_f0", "Sin", [floats(1, 24000, 9)])
    yield case("Round_audio", "Round", [floats(1, 1, 24000)])
    yield case("RandomUniform", "RandomUniformLike", [floats(1, 24000, 9)], seed=1.0)
    yield case("Atan_phase", "Atan", [floats(1, 201, 300)])
    yield case("Mod_phase", "Mod", [floats(1, 24000, 9), np.float32(1)], const=[1], fmod=1)
    yield case("Log1p", "Log", [positive(1, 80, 3000)])
    yield case("ReduceMean_frames", "ReduceMean", [floats(1, 512, 1000), sizes(2)], const=[1])
    yield case("ReduceMean_t", "ReduceMean", [floats(1, 80, 1000), sizes(2)], const=[1])
    lengths = np.array([60, 50, 40, 30, 20, 10, 5, 1], np.int32)
    for op, gates in (("LSTM", 4), ("GRU", 3), ("RNN", 1)):
        inputs = [floats(60, 8, 64), weights(1, gates * 128, 64), weights(1, gates * 128, 128), weights(1, gates * 256)]
        yield case(f"{op}_lengths", op, [*inputs, lengths], 1, const=[1, 2, 3], hidden_size=128)
        inputs = [floats(60, 8, 32), weights(2, gates * 64, 32), weights(2, gates * 64, 64), weights(2, gates * 128)]
        both = {"hidden_size": 64, "direction": "bidirectional"}
        yield case(f"{op}_lengths_bi", op, [*inputs, lengths], 1, const=[1, 2, 3], **both)
    one = [floats(96, 1, 7), weights(1, 4 * 32, 7), weights(1, 4 * 32, 32), weights(1, 8 * 32)]
    yield case("LSTM_series", "LSTM", one, 1, const=[1, 2, 3], hidden_size=32)
    same = np.full(8, 60, np.int32)
    inputs = [floats(60, 8, 64), weights(1, 512, 64), weights(1, 512, 128), weights(1, 1024)]
    yield case("LSTM_full_lengths", "LSTM", [*inputs, same], 1, const=[1, 2, 3], hidden_size=128)
    yield case("ReverseSequence_t", "ReverseSequence", [floats(60, 8, 64), lengths.astype(np.int64)], time_axis=0, batch_axis=1)


def language() -> Iterator[Case]:
    """Masks, positions, embeddings, shapes, and samples of tokens."""
    yield case("Trilu_mask", "Trilu", [floats(512, 512), np.array(1)], const=[1], upper=1)
    yield case("Trilu_bool", "Trilu", [np.ones((1, 1, 512, 512), bool)], upper=0)
    yield case("Trilu_i64", "Trilu", [whole(2, 256, 256)], upper=0)
    yield case("Where_mask", "Where", [truths(1, 1, 256, 256), np.float32(0), np.float32(-3e38)], const=[1, 2])
    yield case("Where_scores", "Where", [truths(1, 1, 256, 256), floats(1, 8, 256, 256), np.float32(-3e38)], const=[2])
    yield case("Where_rows", "Where", [truths(8, 128, 1), floats(8, 128, 256), np.float32(0)], const=[2])
    yield case("Where_pair", "Where", [truths(1, 128, 1), floats(8, 128, 256), floats(1, 1, 256)])
    yield case("Where_scalars_i64", "Where", [truths(8, 512), np.array(1), np.array(0)], const=[1, 2])
    yield case("Where_shape", "Where", [truths(4), whole(9, 4), whole(9, 4)])
    yield case("Expand_mask", "Expand", [truths(8, 1, 1, 256), sizes(8, 1, 256, 256)], const=[1])
    yield case("Expand_f", "Expand", [floats(1, 1, 512, 512), sizes(4, 1, 512, 512)], const=[1])
    yield case("Expand_last", "Expand", [floats(1, 128, 256, 1), sizes(1, 128, 256, 8)], const=[1])
    yield case("Expand_i64", "Expand", [whole(9, 1, 512), sizes(16, 512)], const=[1])
    yield case("Tile_heads", "Tile", [floats(1, 2, 256, 64), sizes(1, 4, 1, 1)], const=[1])
    yield case("Tile_last", "Tile", [floats(128, 512), sizes(1, 2)], const=[1])
    for op in ("Add", "Sub", "Mul", "Div", "Mod"):
        yield case(f"{op}_shape", op, [whole(1000, 4), np.array(7)], const=[1])
        yield case(f"{op}_ids", op, [whole(1000, 8, 512), np.array(7)], const=[1])
    yield case("Div_i64_pair", "Div", [whole(99999, 8, 4096), whole(99, 8, 4096) + 1])
    yield case("Div_i32_7", "Div", [whole(99999, 8, 4096).astype(np.int32), np.array(7, np.int32)], const=[1])
    yield case("Mod_i64_negative", "Mod", [whole(99999, 8, 4096) - 50000, np.array(7)], const=[1])
    yield case("Mod_i32_7", "Mod", [whole(99999, 8, 4096).astype(np.int32), np.array(7, np.int32)], const=[1])
    yield case("Pow_i64", "Pow", [whole(9, 8, 4096), np.array(2)], const=[1])
    yield case("Pow_2", "Pow", [floats(128, 512), np.float32(2)], const=[1])
    yield case("Pow_half", "Pow", [positive(128, 512), np.float32(0.5)], const=[1])
    yield case("Pow_3", "Pow", [floats(128, 512), np.float32(3)], const=[1])
    yield case("Max_i64_7", "Max", [whole(99, 8, 4096), np.array(7)], const=[1])
    yield case("Abs_i64", "Abs", [whole(99, 8, 4096)])
    yield case("Neg_i64", "Neg", [whole(99, 8, 4096)])
    yield case("Sign_i64", "Sign", [whole(99, 8, 4096)])
    yield case("Equal_scalar", "Equal", [whole(99, 8, 4096), np.array(7)], const=[1])
    yield case("Not_mask", "Not", [truths(1, 1, 512, 512)])
    yield case("And_mask", "And", [truths(1, 1, 512, 512), truths(8, 1, 1, 512)])
    yield case("Greater_causal", "GreaterOrEqual", [np.arange(512)[:, None], np.arange(512)[None]])
    yield case("Cast_b_i64", "Cast", [truths(8, 4096)], to=7)
    yield case("Cast_i64_b", "Cast", [whole(2, 8, 4096)], to=9)
    yield case("Cast_i32_i64", "Cast", [whole(2, 8, 4096).astype(np.int32)], to=7)
    yield case("ReduceSum_mask", "ReduceSum", [whole(2, 8, 512), sizes(1)], const=[1])
    yield case("ReduceMin_i64", "ReduceMin", [whole(999, 8, 512), sizes(1)], const=[1])
    yield case("ReduceMax_i32_first", "ReduceMax", [whole(999, 64, 1024).astype(np.int32), sizes(0)], const=[1])
    yield case("ReduceProd_i64", "ReduceProd", [whole(3, 8, 512), sizes(1)], const=[1])
    yield case("ReduceMax_b", "ReduceMax", [truths(64, 1024), sizes(1)], const=[1], opset=20)
    yield case("OneHot_256", "OneHot", [whole(256, 8, 128), np.array(256), np.float32([0, 1])], const=[1, 2])
    yield case("OneHot_axis1", "OneHot", [whole(21, 1, 128, 128), np.array(21), np.float32([0, 1])], const=[1, 2], axis=1)
    yield case("OneHot_i64", "OneHot", [whole(8, 128, 2), np.array(8), sizes(0, 1)], const=[1, 2])
    yield case("NonZero_ids", "NonZero", [whole(2, 8, 512)])
    yield case("NonZero_f", "NonZero", [np.maximum(floats(1, 8400), 1) - 1])
    yield case("NonZero_vector", "NonZero", [truths(8400)])
    yield case("Compress_vector", "Compress", [floats(65536), truths(65536)], axis=0)
    yield case("Gather_word", "Gather", [floats(30522, 64), whole(30522, 32, 128)], const=[0])
    yield case("Gather_scalar", "Gather", [floats(32, 128, 768), np.array(0)], const=[1], axis=1)
    yield case("Gather_i64", "Gather", [whole(99, 4096), whole(4096, 8, 512)])
    yield case("Gather_negative", "Gather", [floats(64, 512), -1 - whole(64, 200)])
    yield case("Gather_features", "Gather", [floats(1000, 16), whole(1000, 64, 26)], const=[0])
    yield case(
        "ScatterND_kv",
        "ScatterND",
        [floats(1, 8, 512, 64), np.stack(np.meshgrid([0], np.arange(8), [77], indexing="ij"), -1), floats(1, 8, 1, 64)],
    )
    yield case("ScatterND_rows", "ScatterND", [floats(512, 256), whole(512, 100, 1), floats(100, 256)])
    yield case(
        "ScatterElements_rows",
        "ScatterElements",
        [floats(512, 256), np.repeat(whole(512, 100, 1), 256, 1), floats(100, 256)],
        axis=0,
    )
    yield case("ScatterElements_last", "ScatterElements", [floats(64, 1024), whole(1024, 64, 8), floats(64, 8)], axis=1)
    yield case(
        "ScatterElements_edges",
        "ScatterElements",
        [np.zeros((1000, 64), np.float32), np.repeat(whole(1000, 5000, 1), 64, 1), floats(5000, 64)],
        axis=0,
        reduction="add",
    )
    yield case(
        "ScatterElements_max",
        "ScatterElements",
        [np.zeros((1000, 64), np.float32), np.repeat(whole(1000, 5000, 1), 64, 1), floats(5000, 64)],
        axis=0,
        reduction="max",
    )
    yield case(
        "ScatterElements_count",
        "ScatterElements",
        [np.zeros(1000, np.float32), whole(1000, 20000), np.ones(20000, np.float32)],
        axis=0,
        reduction="add",
    )
    yield case(
        "ScatterND_add_rows",
        "ScatterND",
        [np.zeros((1000, 64), np.float32), whole(1000, 5000, 1), floats(5000, 64)],
        reduction="add",
    )
    yield case(
        "ScatterND_voxels",
        "ScatterND",
        [np.zeros((64, 100, 100), np.float32), np.stack([whole(64, 4000), whole(100, 4000), whole(100, 4000)], -1), floats(4000)],
    )
    yield case("Unique_ids", "Unique", [whole(30000, 1024)], 4)
    yield case("Unique_rows", "Unique", [whole(9, 500, 3)], 4, axis=0)
    yield case("LogSoftmax_vocab", "LogSoftmax", [floats(4, 50257)], axis=-1)
    yield case("Softmax_vocab", "Softmax", [floats(1, 50257)], axis=-1)
    yield case("Multinomial_vocab", "Multinomial", [floats(1, 50257)], sample_size=1, seed=1.0)
    yield case("Hardmax_router", "Hardmax", [floats(512, 8)])
    yield case("Einsum_bnd", "Einsum", [floats(1, 128, 8, 64), floats(64, 8, 64)], equation="bnhd,ehd->bne")
    yield case("Einsum_diag", "Einsum", [floats(8, 64, 64)], equation="bii->bi")
    yield case("Einsum_three", "Einsum", [floats(8, 32), floats(32, 16), floats(16, 8)], equation="ij,jk,kl->il")
    yield case("Einsum_mask", "Einsum", [floats(1, 100, 256), floats(1, 256, 64, 64)], equation="bqc,bchw->bqhw")
    yield case("Einsum_vec", "Einsum", [floats(64, 128, 64), floats(64, 64)], equation="bnd,bd->bn")
    yield case("Add_self", "Mul", [floats(64, 1024), np.float32(2)], const=[1])
    yield case("Mean_3", "Mean", [floats(64, 1024), floats(64, 1024), floats(64, 1024)])
    yield case("Sum_4", "Sum", [floats(64, 1024), floats(64, 1024), floats(64, 1024), floats(64, 1024)])
    yield case("Max_3", "Max", [floats(64, 1024), floats(64, 1024), floats(64, 1024)])
    yield case("BitwiseNot", "BitwiseNot", [whole(99, 64, 1024)])
    yield case("Slice_i64", "Slice", [whole(99, 8, 512), sizes(0), sizes(511), sizes(1)], const=[1, 2, 3])
    yield case(
        "Slice_neg_step", "Slice", [floats(1, 3, 224, 224), sizes(-1), sizes(-999), sizes(1), sizes(-1)], const=[1, 2, 3, 4]
    )
    yield case("Split_uneven", "Split", [floats(1, 8400, 144), sizes(64, 80)], 2, const=[1], axis=2)
    yield case("Concat_three_scales", "Concat", [floats(1, 144, 6400), floats(1, 144, 1600), floats(1, 144, 400)], axis=2)
    yield case("Concat_four_columns", "Concat", [floats(8400, 1), floats(8400, 1), floats(8400, 1), floats(8400, 1)], axis=-1)
    yield case("Concat_short_heads", "Concat", [floats(1, 386, 32, 4), floats(1, 386, 32, 4)], axis=-1)
    yield case("Transpose_heads", "Transpose", [floats(1, 8, 256, 64)], perm=[0, 2, 1, 3])
    yield case("Transpose_k", "Transpose", [floats(1, 8, 256, 64)], perm=[0, 1, 3, 2])
    yield case("Transpose_i64", "Transpose", [whole(9, 64, 1024)], perm=[1, 0])
    yield case("IsNaN_f16", "IsNaN", [floats(64, 1024).astype(np.float16)])
