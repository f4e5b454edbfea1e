"""Nothing is compiled where only sizes change, to 1 and from 1 too: many operators, each in many sizes, with right results."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.device import Eltwise, Sum
from dovetail.op import Operator
from dovetail_gpu_opencl.program import Programs
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling
from dovetail_ops_onnx.relu import Relu

SIZES = ((2, 3, 17), (1, 3, 17), (2, 1, 5), (3, 2, 1), (1, 1, 1), (5, 7, 40), (1, 30, 2), (0, 3, 5), (2, 0, 5))
"""Batches, and two lengths, or heights and widths."""
Build = Callable[[Any, int, int, int], Sequence[Any]]
W = np.linspace(-1, 1, 12 * 6 * 9, dtype=np.float32)
HALF, NINE, STEP = np.float32(0.5), np.int64(9), np.int64(3)


def floats(*dims: int) -> Any:
    """Different numbers between -1 and 1, in no order."""
    return np.cos(np.arange(int(np.prod(dims)), dtype=np.float32) * 7).reshape(dims)


def image(n: int, h: int, w: int) -> Any:
    return floats(n, 6, h, w)


def padded(*others: Any) -> Build:
    """An image that windows of 3 x 3 find in all sizes, and constants."""
    return lambda n, h, w: [floats(n, 6, h + 3, w + 3), *others]


def images(*others: Any) -> Build:
    return lambda n, h, w: [image(n, h, w), *others]


def texts(*others: Any) -> Build:
    return lambda n, h, w: [floats(n, w, 12), *others]


def rows(*others: Any) -> Build:
    return lambda n, h, w: [floats(n, 24), *others]


def numbers(low: int, high: int, *dims: int) -> Any:
    return np.arange(int(np.prod(dims)), dtype=np.int64).reshape(dims) % (high - low) + low


def stored(*dims: int) -> Any:
    """All numbers of 8 bits, in no order."""
    return (np.arange(int(np.prod(dims)), dtype=np.int64) * 7919 % 251).astype(np.uint8).reshape(dims)


BYTES = (np.arange(12 * 54) * 7919 % 255 - 127).astype(np.int8)
KERNELS, COLUMNS, DEPTHWISE = BYTES.reshape(12, 6, 3, 3), BYTES[: 12 * 40].reshape(12, 40), BYTES[:54].reshape(6, 1, 3, 3)
ZERO, THREE, ONE, ZEROS = np.uint8(131), np.uint8(3), np.int8(1), np.zeros(12, np.int8)
CHANNELS, ROW, ADDENDS = stored(1, 6, 1, 1), stored(12), W[:40]
SCALES, SCALE = np.float32(2) ** -np.arange(1, 13).astype(np.float32), np.float32(16)
"""Powers of two, so that float and double give the same."""


def chain() -> Quantized:
    """A convolution, a sum and a Relu between quantized values, as a graph pass joins them."""
    steps = (
        QuantizedStep(Conv(pads=(1, 1, 1, 1)), (0, 1)),
        Scaling(SCALE, ZERO),
        QuantizedStep(Add(), (2, -1)),
        QuantizedStep(Relu(), (-1,)),
    )
    return Quantized(steps, (Scaling(HALF, ZERO), Scaling(SCALES, ZEROS, 0), Scaling(SCALE, ZERO)), Scaling(SCALE, THREE))


def product(result: Scaling | None) -> Quantized:
    """The product of a quantized value by a matrix, and a row that is added."""
    steps = (QuantizedStep(MatMul(), (0, 1)), Scaling(SCALE, ZERO), QuantizedStep(Add(), (-1, 2)))
    return Quantized(steps, (Scaling(HALF, ZERO), Scaling(HALF, np.int8(0)), None), result)


def sum_of_two() -> Quantized:
    """A sum of quantized values, stored again."""
    return Quantized((QuantizedStep(Add(), (0, 1)),), (Scaling(HALF, ZERO), Scaling(SCALE, ZERO)), Scaling(SCALE, THREE))


QUANTIZED: dict[str, tuple[str | Operator, dict[str, Any], Build]] = {
    "q_linear_conv": (
        "QLinearConv",
        {"pads": (1, 1, 1, 1)},
        lambda n, h, w: [stored(n, 6, h, w), HALF, ZERO, KERNELS, SCALES, ZEROS, SCALE, THREE],
    ),
    "q_linear_conv_depthwise": (
        "QLinearConv",
        {"pads": (1, 1, 1, 1), "group": 6},
        lambda n, h, w: [stored(n, 6, h, w), HALF, ZERO, DEPTHWISE, HALF, ONE, SCALE, THREE],
    ),
    "conv_integer": ("ConvInteger", {"pads": (1, 1, 1, 1)}, lambda n, h, w: [stored(n, 6, h, w), KERNELS, ZERO]),
    "q_linear_mat_mul": (
        "QLinearMatMul",
        {},
        lambda n, h, w: [stored(n, w, 12), HALF, ZERO, COLUMNS, HALF, ONE, SCALE, THREE],
    ),
    "mat_mul_integer": ("MatMulInteger", {}, lambda n, h, w: [stored(n, w, 12), COLUMNS, ZERO]),
    "integers_of_two": ("MatMulInteger", {}, lambda n, h, w: [stored(n, 4, w, 8), stored(n, 4, 8, h + 48), ZERO, THREE]),
    "quantize_channels": ("QuantizeLinear", {"axis": 1}, images(SCALES[:6], np.arange(6, dtype=np.uint8))),
    "quantize_rows": ("QuantizeLinear", {"axis": 2}, texts(SCALES, np.arange(12, dtype=np.uint8))),
    "dequantize_rows": ("DequantizeLinear", {"axis": 2}, lambda n, h, w: [stored(n, w, 12), SCALES]),
    "dynamic_quantize": ("DynamicQuantizeLinear", {}, lambda n, h, w: [floats(n, w, 600)]),
    "quantized_chain": (chain(), {}, lambda n, h, w: [stored(n, 6, h, w), KERNELS, stored(n, 12, h, w)]),
    "quantized_product": (product(Scaling(SCALE, THREE)), {}, lambda n, h, w: [stored(n, w, 12), COLUMNS, ADDENDS]),
    "quantized_product_to_floats": (product(None), {}, lambda n, h, w: [stored(n, w, 12), COLUMNS, ADDENDS]),
    "quantized_sum": (sum_of_two(), {}, lambda n, h, w: [stored(n, w, 12), stored(n, w, 12)]),
    "quantized_sum_of_a_row": (sum_of_two(), {}, lambda n, h, w: [stored(n, w, 12), ROW]),
    "quantized_sum_by_channels": (
        sum_of_two(),
        {},
        lambda n, h, w: [stored(n, 6, h, w), CHANNELS],
    ),
}
MOVED = ("q_linear_conv", "q_linear_conv_depthwise", "conv_integer", "quantized_chain")
"""Plain images of more than one pixel are brought into another order first, by another kernel of the program."""
ONE_BY_ONE = "quantize_channels"
"""It has a second program for images of one pixel, whose elements have a scale each."""
CASES: dict[str, tuple[str | Operator, dict[str, Any], Build]] = QUANTIZED | {
    "convolution": ("Conv", {"pads": (1, 1, 1, 1)}, images(W[: 12 * 54].reshape(12, 6, 3, 3), W[:12])),
    "strided": ("Conv", {"strides": (2, 2)}, padded(W[: 20 * 6 * 4].reshape(20, 6, 2, 2))),
    "depthwise": ("Conv", {"group": 6, "pads": (1, 1, 1, 1)}, images(W[:54].reshape(6, 1, 3, 3))),
    "few_maps": ("Conv", {"pads": (1, 1, 1, 1)}, images(W[: 2 * 54].reshape(2, 6, 3, 3))),
    "conv_transpose": ("ConvTranspose", {"strides": (2, 2)}, images(W[: 6 * 5 * 4].reshape(6, 5, 2, 2))),
    "gemm": ("Gemm", {"transB": 1}, lambda n, h, w: [floats(n, 12), W[: 20 * 12].reshape(20, 12), W[:20]]),
    "few_rows": ("Gemm", {}, rows(W[: 24 * 20].reshape(24, 20), W[:20])),
    "mat_mul": ("MatMul", {}, texts(W[: 12 * 40].reshape(12, 40))),
    "max_pool": ("MaxPool", {"kernel_shape": (3, 3)}, padded()),
    "average_pool": ("AveragePool", {"kernel_shape": (3, 3), "pads": (1, 1, 1, 1)}, images()),
    "global_average_pool": ("GlobalAveragePool", {}, images()),
    "global_max_pool": ("GlobalMaxPool", {}, images()),
    "reduce_mean_of_lengths": ("ReduceMean", {"keepdims": 0}, texts(np.array([1]))),
    "reduce_sum_of_rows": ("ReduceSum", {}, texts(np.array([-1]))),
    "reduce_max_of_images": ("ReduceMax", {}, images(np.array([2, 3]))),
    "reduce_l2_of_channels": ("ReduceL2", {}, images(np.array([1]))),
    "arg_max": ("ArgMax", {"axis": 1}, texts()),
    "softmax": ("Softmax", {}, texts()),
    "softmax_of_lengths": ("Softmax", {"axis": -1}, images()),
    "softmax_of_channels": ("Softmax", {"axis": 1}, images()),
    "log_softmax": ("LogSoftmax", {}, images()),
    "hardmax": ("Hardmax", {}, texts()),
    "layer_normalization": ("LayerNormalization", {}, texts(W[:12], W[:12])),
    "rms_normalization": ("RMSNormalization", {}, texts(W[:12])),
    "batch_normalization": ("BatchNormalization", {}, images(W[:6], W[:6], W[:6], np.ones(6, np.float32))),
    "instance_normalization": ("InstanceNormalization", {}, images(W[:6], W[:6])),
    "group_normalization": ("GroupNormalization", {"num_groups": 2}, images(W[:6], W[:6])),
    "relu": ("Relu", {}, images()),
    "sigmoid": ("Sigmoid", {}, texts()),
    "gelu": ("Gelu", {}, texts()),
    "p_relu": ("PRelu", {}, images(W[:6].reshape(6, 1, 1))),
    "clip": ("Clip", {}, images(np.float32(-0.25), HALF)),
    "cast": ("Cast", {"to": 7}, images()),
    "add_to_channels": ("Add", {}, images(W[:6].reshape(1, 6, 1, 1))),
    "add_a_row": ("Add", {}, texts(W[:12])),
    "add_a_number": ("Add", {}, texts(HALF)),
    "add_both": ("Add", {}, lambda n, h, w: [image(n, h, w), image(n, h, w)]),
    "scale_channels": ("Mul", {}, lambda n, h, w: [image(n, h, w + 1), floats(n, 6, 1, 1)]),
    "mask_lengths": ("Where", {}, lambda n, h, w: [floats(n, w, 1) > 0, floats(n, w, 12), HALF]),
    "compare": ("Less", {}, texts(HALF)),
    "concat": ("Concat", {"axis": 1}, lambda n, h, w: [image(n, h, w), floats(n, 2, h, w)]),
    "concat_lengths": ("Concat", {"axis": 1}, lambda n, h, w: [floats(n, w, 12), floats(n, h, 12)]),
    "slice": ("Slice", {}, images(np.array([1]), np.array([5]), np.array([1]), np.array([2]))),
    "transpose": ("Transpose", {"perm": (0, 2, 3, 1)}, images()),
    "transpose_heads": ("Transpose", {"perm": (0, 2, 1, 3)}, images()),
    "transpose_matrices": ("Transpose", {"perm": (0, 2, 1)}, texts()),
    "expand": ("Expand", {}, images(np.array([1, 1, 1, 1, 1]))),
    "tile": ("Tile", {}, texts(np.array([1, 2, 1]))),
    "pad": ("Pad", {}, images(np.array([0, 0, 1, 1, 0, 0, 1, 1]))),
    "gather": ("Gather", {}, lambda n, h, w: [W[: 50 * 12].reshape(50, 12), numbers(-50, 50, n, w)]),
    "gather_elements": ("GatherElements", {"axis": 2}, lambda n, h, w: [floats(n, w, 12), numbers(0, 12, n, w, 3)]),
    "resize": ("Resize", {"mode": "linear"}, images(None, np.float32([1, 1, 2, 2]))),
    "resize_nearest": ("Resize", {"mode": "nearest"}, images(None, np.float32([1, 1, 2, 2]))),
    "depth_to_space": ("DepthToSpace", {"blocksize": 2}, lambda n, h, w: [floats(n, 8, h, w)]),
    "cum_sum": ("CumSum", {}, texts(np.int64(1))),
    "trilu": ("Trilu", {}, images()),
    "stft": ("STFT", {}, lambda n, h, w: [floats(n, 16 + w), STEP, W[:8]]),
    "top_k": ("TopK", {}, texts(np.array([3]))),
    "one_hot": ("OneHot", {}, lambda n, h, w: [numbers(0, 9, n, w), NINE, np.float32([0, 1])]),
    "quantize": ("QuantizeLinear", {}, images(np.float32(0.1), np.uint8(128))),
    "dequantize": ("DequantizeLinear", {}, lambda n, h, w: [numbers(0, 255, n, 6, h, w).astype(np.uint8), HALF]),
    "attention": ("Attention", {}, lambda n, h, w: [floats(n, 4, w, 8) for _ in range(3)]),
    "masked_attention": (
        "Attention",
        {},
        lambda n, h, w: [*(floats(n, 4, w, 8) for _ in range(3)), floats(n, 1, w, w)],
    ),
    "products_of_two": ("MatMul", {}, lambda n, h, w: [floats(n, 4, w, 8), floats(n, 4, 8, h + 48)]),
    "few_columns": ("MatMul", {}, lambda n, h, w: [floats(n, 4, w, 8), floats(n, 4, 8, 2 * h)]),
    "few_and_many_columns": ("MatMul", {}, lambda n, h, w: [floats(n, 4, h, 8), floats(n, 4, 8, 1 + 2 * w)]),
}
ON_GPUS = sorted(
    CASES.keys()
    - {"few_maps", "softmax_of_lengths", "softmax_of_channels", "log_softmax"}  # sizes are in the text
    - {"strided", "quantize", "products_of_two", "few_columns", "few_and_many_columns"}  # vectors that memory is not aligned to
    - {"attention", "masked_attention"}  # one query
    - {"conv_integer", "quantized_chain"}  # results with channels innermost alone: see test_bytes.py
)
"""Of a model's later plans, which hurry."""


def constants(inputs: Sequence[Any], others: Sequence[Any]) -> list[int]:
    """The positions of the inputs that are the same objects in both, and so constant."""
    return [i for i, (one, other) in enumerate(zip(inputs, others, strict=True)) if one is other]


@pytest.mark.exhaustive(0.2)  # each compiles programs
@pytest.mark.parametrize("first", [0, 4])
@pytest.mark.parametrize(
    ("kind", "case"), [*(("CPU", case) for case in CASES if case != "stft"), *(("GPU", case) for case in ON_GPUS)]
)
def test_nothing_is_compiled_where_only_sizes_change(
    kind: str, case: str, first: int, without_matrix_units: Callable[[str], Any], bench: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever sizes come first; products run with a chain of post-ops."""
    device, known = without_matrix_units(kind).configured({}), set[tuple[str, str]]()
    inner = Programs.get

    def get(self: Programs, launch: Any, node: str) -> Any:
        known.add((launch.entry, launch.source))
        return inner(self, launch, node)

    monkeypatch.setattr(Programs, "get", get)
    name, attributes, build = CASES[case]
    op = bench.op(name, **attributes) if isinstance(name, str) else name
    fixed = constants(build(2, 3, 17), build(1, 1, 1))
    built: dict[tuple[int, ...], set[tuple[str, str]]] = {}
    for sizes in (SIZES[first], *SIZES):
        inputs = build(*sizes)
        post_ops = [Eltwise("relu"), Sum("r")] if name in ("Conv", "Gemm", "MatMul") else []
        with np.errstate(all="ignore"):
            expected = np.asarray((lambda r: r[0] if isinstance(r, tuple) else r)(op.reference(*inputs)))
        rest = {"r": floats(*expected.shape)} if post_ops else {}
        outputs = 3 if name == "DynamicQuantizeLinear" else 1
        graph, feeds = bench.single(op, inputs, fixed, outputs, post_ops, rest)
        known.clear()
        (got, *_) = device.compile(graph, {}).create_request().run(feeds)
        if known:
            built[sizes] = set(known)
        expected = np.maximum(expected, 0) + rest["r"] if post_ops else expected
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)
    allowed = built[SIZES[first]]
    if case == ONE_BY_ONE:
        allowed = built[SIZES[0]] | built[SIZES[4]]
    if case in MOVED:
        allowed = allowed | {("channels_last", source) for _, source in allowed}
    wrong = {sizes: [entry for entry, _ in some - allowed] for sizes, some in built.items()}
    assert not any(wrong.values()), str({s: w for s, w in wrong.items() if w})


def test_pointwise_convolutions_have_two_programs_at_most(without_matrix_units: Callable[[str], Any], bench: Any) -> None:
    """For planes of fewer pixels than a tile has columns another kernel is faster."""
    device, found = without_matrix_units("CPU"), set[str]()
    device.caps = dataclasses.replace(device.caps, compute_units=2)
    for height, width in ((1, 1), (1, 7), (2, 5), (4, 8), (5, 8), (7, 7), (10, 10), (20, 10), (56, 56), (3, 1)):
        x, w = floats(1, 96, height, width), np.cos(np.arange(64 * 96, dtype=np.float32)).reshape(64, 96, 1, 1)
        graph, feeds = bench.single(bench.op("Conv"), [x, w], (1,))
        executable = device.compile(graph, {})
        found |= {command.launch.source for command in executable.commands}
        (got,) = executable.create_request().run(feeds)
        expected = np.einsum("nchw,mc->nmhw", x.astype(np.float64), w[..., 0, 0])
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-4)
    assert len(found) <= 2
