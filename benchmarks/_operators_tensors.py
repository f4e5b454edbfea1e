"""Models of one operator: elementwise, reductions, movement, images and detection."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from _operators import PLANES, RNG, ROWS, Case, case, floats, pixels, positive, sizes, truths, whole
from onnx import TensorProto as T


def elementwise() -> Iterator[Case]:
    """Elementwise operators and conversions."""
    for op in [
        "Abs",
        "Neg",
        "Sqrt",
        "Exp",
        "Log",
        "Sigmoid",
        "Tanh",
        "Relu",
        "Erf",
        "Floor",
        "Ceil",
        "Round",
        "Sign",
        "Reciprocal",
        "Sin",
        "Cos",
        "Tan",
        "Asin",
        "Acos",
        "Atan",
        "Sinh",
        "Cosh",
        "Asinh",
        "Acosh",
        "Atanh",
        "Softplus",
        "Softsign",
        "Elu",
        "Selu",
        "Celu",
        "HardSigmoid",
        "HardSwish",
        "LeakyRelu",
        "ThresholdedRelu",
        "Gelu",
        "Mish",
        "Identity",
        "Not",
        "IsNaN",
        "IsInf",
        "Shrink",
    ]:
        x = ROWS
        if op in ("Sqrt", "Log", "Acosh"):
            x = positive(64, 1024) + 1
        if op in ("Asin", "Acos", "Atanh"):
            x = (positive(64, 1024) - 1) * 0.9
        if op == "Not":
            x = truths(64, 1024)
        yield case(op, op, [x])
    yield case("Gelu_tanh", "Gelu", [ROWS], approximate="tanh")
    yield case("Swish", "Swish", [ROWS], opset=24)
    for op in ["Add", "Sub", "Mul", "Div", "Pow", "Max", "Min", "Mean", "Sum", "Mod_f", "PRelu"]:
        y = floats(64, 1024)
        a = {}
        o = op
        if op == "Mod_f":
            o = "Mod"
            a = {"fmod": 1}
        yield case(op, o, [positive(64, 1024) if op == "Pow" else ROWS, y], **a)
    for op in ["Add", "Mul", "Sub", "Div", "Mod", "Max", "Min"]:
        yield case(op + "_i64", op, [whole(1000, 64, 1024), whole(1000, 64, 1024) + 1])
        yield case(op + "_i32", op, [whole(1000, 64, 1024).astype(np.int32), (whole(1000, 64, 1024) + 1).astype(np.int32)])
    for op in ["Add", "Mul", "Exp", "Sqrt", "Tanh", "MatMul"]:
        two = [positive(256, 256).astype(np.float64)] * (2 if op in ("Add", "Mul", "MatMul") else 1)
        yield case(op + "_f64", op, two)
    for op in ["Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual"]:
        yield case(op, op, [ROWS, floats(64, 1024)])
    yield case("Equal_i64", "Equal", [whole(5, 64, 1024), whole(5, 64, 1024)])
    for op in ["And", "Or", "Xor"]:
        yield case(op, op, [truths(64, 1024), truths(64, 1024)])
    yield case("Where", "Where", [truths(64, 1024), ROWS, floats(64, 1024)])
    yield case("Where_b", "Where", [truths(1, 1, 128, 128), floats(1, 12, 128, 128), np.array(-1e9, np.float32)], const=[2])
    yield case("Where_i64", "Where", [truths(64, 1024), whole(9, 64, 1024), whole(9, 64, 1024)])
    yield case("BitwiseAnd", "BitwiseAnd", [whole(99, 64, 1024).astype(np.int32), whole(99, 64, 1024).astype(np.int32)])
    yield case(
        "BitShift", "BitShift", [whole(99, 64, 1024).astype(np.uint32), whole(9, 64, 1024).astype(np.uint32)], direction="LEFT"
    )
    for k, (a, c) in {
        "f_i64": (ROWS, T.INT64),
        "f_u8": (positive(64, 1024) * 90, T.UINT8),
        "u8_f": (pixels(1, 3, 224, 224), T.FLOAT),
        "i64_f": (whole(9, 64, 1024), T.FLOAT),
        "f_f16": (ROWS, T.FLOAT16),
        "f16_f": (ROWS.astype(np.float16), T.FLOAT),
        "b_f": (truths(64, 1024), T.FLOAT),
        "i64_i32": (whole(9, 64, 1024), T.INT32),
        "f_b": (ROWS, T.BOOL),
        "f_f64": (ROWS, T.DOUBLE),
        "f64_f": (ROWS.astype(np.float64), T.FLOAT),
    }.items():
        yield case("Cast_" + k, "Cast", [a], to=c)


def reductions() -> Iterator[Case]:
    """Reductions, searches for the largest, softmax, sums along an axis."""
    for op in [
        "ReduceSum",
        "ReduceMean",
        "ReduceMax",
        "ReduceMin",
        "ReduceProd",
        "ReduceL1",
        "ReduceL2",
        "ReduceLogSum",
        "ReduceLogSumExp",
        "ReduceSumSquare",
    ]:
        x = positive(64, 1024) if op == "ReduceLogSum" else ROWS
        yield case(op + "_last", op, [x, sizes(-1)], const=[1])
        yield case(op + "_first", op, [x, sizes(0)], const=[1])
    yield case("ReduceMean_hw", "ReduceMean", [PLANES, sizes(2, 3)], const=[1])
    yield case("ReduceMean_c", "ReduceMean", [PLANES, sizes(1)], const=[1])
    yield case("ReduceSum_all", "ReduceSum", [PLANES])
    yield case("ReduceMax_i64", "ReduceMax", [whole(9, 64, 1024), sizes(-1)], const=[1])
    yield case("ReduceSum_i64", "ReduceSum", [whole(9, 64, 1024), sizes(-1)], const=[1])
    yield case("ArgMax_last", "ArgMax", [floats(128, 6625)], axis=-1)
    yield case("ArgMax_c", "ArgMax", [floats(1, 21, 128, 128)], axis=1)
    yield case("ArgMin", "ArgMin", [ROWS], axis=1)
    yield case("TopK", "TopK", [floats(1, 8400), sizes(300)], 2, const=[1])
    yield case("TopK_k1", "TopK", [floats(128, 1000), sizes(5)], 2, const=[1])
    yield case("TopK_big", "TopK", [floats(80, 8400), sizes(100)], 2, const=[1])
    yield case("Softmax", "Softmax", [floats(12, 128, 128)])
    yield case("Softmax_c", "Softmax", [floats(1, 21, 128, 128)], axis=1)
    yield case("LogSoftmax", "LogSoftmax", [floats(128, 1000)])
    yield case("Hardmax", "Hardmax", [floats(128, 1000)])
    yield case("CumSum", "CumSum", [ROWS, np.array(1, np.int64)], const=[1])
    yield case("CumSum_i64", "CumSum", [whole(2, 1, 4096), np.array(1, np.int64)], const=[1])
    yield case("CumProd", "CumProd", [positive(64, 1024), np.array(1, np.int64)], const=[1], opset=26)


def movement() -> Iterator[Case]:
    """Operators that move elements."""
    yield case("Transpose_01", "Transpose", [floats(128, 12, 64)], perm=[1, 0, 2])
    yield case("Transpose_nchw", "Transpose", [PLANES], perm=[0, 2, 3, 1])
    yield case("Transpose_2d", "Transpose", [floats(512, 512)], perm=[1, 0])
    yield case("Transpose_6d", "Transpose", [floats(1, 8, 2, 32, 2, 32)], perm=[0, 1, 3, 5, 2, 4])
    yield case("Transpose_u8", "Transpose", [pixels(1, 480, 640, 3)], perm=[0, 3, 1, 2])
    yield case("Concat_c", "Concat", [PLANES, PLANES.copy()], axis=1)
    yield case("Concat_last", "Concat", [floats(1, 128, 8, 32), floats(1, 128, 8, 32)], axis=-1)
    yield case("Concat_i64", "Concat", [whole(9, 64, 512), whole(9, 64, 512)], axis=1)
    yield case("Split", "Split", [floats(1, 128, 1152)], 3, axis=-1, num_outputs=3)
    yield case("Slice_last", "Slice", [floats(1, 128, 1152), sizes(0), sizes(384), sizes(2)], const=[1, 2, 3])
    yield case("Slice_step", "Slice", [PLANES, sizes(0, 0), sizes(999, 999), sizes(2, 3), sizes(2, 2)], const=[1, 2, 3, 4])
    yield case("Slice_rev", "Slice", [ROWS, sizes(-1), sizes(-99999), sizes(1), sizes(-1)], const=[1, 2, 3, 4])
    yield case("Gather_emb", "Gather", [floats(30522, 384), whole(30522, 1, 128)], const=[0])
    yield case("Gather_1", "Gather", [floats(64, 64, 64), whole(64, 32)], axis=1)
    yield case("Gather_last", "Gather", [floats(64, 1024), whole(1024, 100)], axis=-1)
    yield case("GatherElements", "GatherElements", [ROWS, whole(64, 64, 1024)], axis=0)
    yield case("GatherND", "GatherND", [floats(64, 64, 64), np.stack([whole(64, 1000), whole(64, 1000)], -1)])
    yield case("ScatterElements", "ScatterElements", [ROWS, whole(64, 64, 1024), floats(64, 1024)], axis=0)
    yield case("ScatterElements_add", "ScatterElements", [ROWS, whole(64, 64, 1024), floats(64, 1024)], axis=0, reduction="add")
    indices = np.stack(np.meshgrid(np.arange(64), np.arange(32), indexing="ij"), -1).astype(np.int64)
    yield case("ScatterND", "ScatterND", [floats(64, 64, 64), indices, floats(64, 32, 64)])
    yield case("ScatterND_add", "ScatterND", [floats(64, 64, 64), indices, floats(64, 32, 64)], reduction="add")
    yield case("ScatterND_pt", "ScatterND", [floats(64, 64, 64), RNG.integers(0, 64, (1000, 3)).astype(np.int64), floats(1000)])
    yield case("Tile", "Tile", [floats(1, 64, 128), sizes(8, 1, 2)], const=[1])
    yield case("Expand", "Expand", [floats(1, 8, 1, 128, 64), sizes(1, 8, 4, 128, 64)], const=[1])
    yield case("Pad", "Pad", [PLANES, sizes(0, 0, 1, 1, 0, 0, 1, 1)], const=[1])
    yield case("Pad_reflect", "Pad", [PLANES, sizes(0, 0, 3, 3, 0, 0, 3, 3)], const=[1], mode="reflect")
    yield case("Pad_edge", "Pad", [PLANES, sizes(0, 0, 3, 3, 0, 0, 3, 3)], const=[1], mode="edge")


def images() -> Iterator[Case]:
    """Resize and samples of images."""
    yield case(
        "Resize_nearest",
        "Resize",
        [PLANES, None, np.array([1, 1, 2, 2], np.float32)],
        const=[2],
        mode="nearest",
        coordinate_transformation_mode="asymmetric",
        nearest_mode="floor",
    )
    yield case("Resize_linear", "Resize", [PLANES, None, np.array([1, 1, 2, 2], np.float32)], const=[2], mode="linear")
    yield case("Resize_cubic", "Resize", [PLANES, None, np.array([1, 1, 2, 2], np.float32)], const=[2], mode="cubic")
    yield case(
        "Resize_align",
        "Resize",
        [PLANES, None, None, sizes(1, 64, 112, 112)],
        const=[3],
        mode="linear",
        coordinate_transformation_mode="align_corners",
    )
    yield case(
        "Resize_nhwc", "Resize", [floats(1, 56, 56, 64), None, np.array([1, 2, 2, 1], np.float32)], const=[2], mode="linear"
    )
    yield case("Resize_u8", "Resize", [pixels(1, 3, 480, 640), None, None, sizes(1, 3, 224, 224)], const=[3], mode="linear")
    yield case(
        "Resize_down_antialias",
        "Resize",
        [floats(1, 3, 480, 640), None, None, sizes(1, 3, 224, 224)],
        const=[3],
        mode="linear",
        antialias=1,
    )
    yield case(
        "Resize_cubic_pos",
        "Resize",
        [floats(1, 384, 16, 16), None, None, sizes(1, 384, 24, 24)],
        const=[3],
        mode="cubic",
        coordinate_transformation_mode="half_pixel",
    )
    yield case(
        "GridSample",
        "GridSample",
        [floats(1, 64, 56, 56), (RNG.random((1, 56, 56, 2)) * 2 - 1).astype(np.float32)],
        mode="linear",
    )
    yield case(
        "GridSample_deform",
        "GridSample",
        [floats(8, 32, 32, 32), (RNG.random((8, 300, 4, 2)) * 2 - 1).astype(np.float32)],
        mode="linear",
        padding_mode="zeros",
    )
    yield case(
        "GridSample_nearest",
        "GridSample",
        [floats(1, 64, 56, 56), (RNG.random((1, 56, 56, 2)) * 2 - 1).astype(np.float32)],
        mode="nearest",
    )
    yield case(
        "GridSample_cubic",
        "GridSample",
        [floats(1, 16, 56, 56), (RNG.random((1, 56, 56, 2)) * 2 - 1).astype(np.float32)],
        mode="cubic",
    )
    yield case("AffineGrid", "AffineGrid", [floats(1, 2, 3), sizes(1, 3, 224, 224)], const=[1])


def detection() -> Iterator[Case]:
    """Operators of detectors, and of indices."""
    rois = np.concatenate([RNG.random((100, 2)) * 100, RNG.random((100, 2)) * 100 + 110], 1).astype(np.float32)
    yield case(
        "RoiAlign",
        "RoiAlign",
        [floats(1, 256, 50, 50), rois, np.zeros(100, np.int64)],
        output_height=7,
        output_width=7,
        sampling_ratio=2,
        spatial_scale=0.25,
    )
    yield case(
        "MaxRoiPool",
        "MaxRoiPool",
        [floats(1, 256, 50, 50), np.concatenate([np.zeros((100, 1), np.float32), rois], 1)],
        pooled_shape=[7, 7],
        spatial_scale=0.25,
    )
    boxes = np.concatenate([RNG.random((1, 1000, 2)) * 500, RNG.random((1, 1000, 2)) * 100 + 500], 2).astype(np.float32)
    boxes = np.concatenate([boxes[..., :2], boxes[..., :2] + RNG.random((1, 1000, 2)) * 80 + 8], 2).astype(np.float32)
    yield case(
        "NMS",
        "NonMaxSuppression",
        [
            boxes,
            RNG.random((1, 80, 1000)).astype(np.float32),
            sizes(100),
            np.array([0.5], np.float32),
            np.array([0.9], np.float32),
        ],
        const=[2, 3, 4],
    )
    yield case(
        "NMS_1",
        "NonMaxSuppression",
        [
            boxes,
            RNG.random((1, 1, 1000)).astype(np.float32),
            sizes(1000),
            np.array([0.5], np.float32),
            np.array([0.05], np.float32),
        ],
        const=[2, 3, 4],
    )
    yield case("NonZero", "NonZero", [truths(64, 1024)])
    yield case("Unique", "Unique", [whole(500, 4096)], 4, sorted=1)
    yield case("Compress", "Compress", [ROWS, truths(64)], axis=0)
    yield case("OneHot", "OneHot", [whole(1000, 64), sizes(1000), np.array([0, 1], np.float32)], const=[1, 2])
    yield case("EyeLike", "EyeLike", [floats(256, 256)])
    yield case("Trilu", "Trilu", [floats(12, 128, 128)], upper=0)
    yield case("Range", "Range", [np.array(0, np.int64), np.array(4096, np.int64), np.array(1, np.int64)])
    yield case("ConstantOfShape", "ConstantOfShape", [sizes(64, 1024)])
    yield case("ReverseSequence", "ReverseSequence", [floats(128, 8, 64), whole(128, 8) + 1], time_axis=0, batch_axis=1)
    yield case("Clip", "Clip", [ROWS, np.array(-1, np.float32), np.array(1, np.float32)], const=[1, 2])
    yield case("Clip_i64", "Clip", [whole(99, 64, 1024), np.array(3, np.int64), np.array(50, np.int64)], const=[1, 2])
    yield case("DepthToSpace", "DepthToSpace", [floats(1, 64, 56, 56)], blocksize=2)
    yield case("DepthToSpace_CRD", "DepthToSpace", [floats(1, 64, 56, 56)], blocksize=2, mode="CRD")
    yield case("SpaceToDepth", "SpaceToDepth", [floats(1, 16, 112, 112)], blocksize=2)
    yield case("Col2Im", "Col2Im", [floats(1, 64 * 9, 900), sizes(32, 32), sizes(3, 3)], const=[1, 2])
    yield case("CenterCropPad", "CenterCropPad", [floats(3, 480, 640), sizes(224, 224)], const=[1], axes=[1, 2])
