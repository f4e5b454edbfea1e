"""Every operator against onnxruntime, on random inputs: odd sizes, optional inputs, other types."""

import math
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.op import OperatorError, UnboundOperator
from dovetail_ops_onnxruntime_contrib import mat_mul_n_bits
from dovetail_ops_onnxruntime_contrib.activations import Gelu
from dovetail_ops_onnxruntime_contrib.linear_algebra import CDist, Inverse
from dovetail_ops_onnxruntime_contrib.mat_mul_n_bits import MatMulNBits
from dovetail_ops_onnxruntime_contrib.text import Tokenizer

F16 = 4e-3


def _floats(rng: np.random.Generator, *shape: int, dtype: Any = np.float32) -> Any:
    return rng.standard_normal(shape).astype(dtype)


@pytest.mark.parametrize("op_type", ["Gelu", "QuickGelu", "FastGelu"])
@pytest.mark.parametrize("shape", [(3, 7), (2, 1, 5), (0, 4)], ids=str)
def test_activations(agree: Any, rng: np.random.Generator, op_type: str, shape: tuple[int, ...]) -> None:
    agree(op_type, [_floats(rng, *shape)])


@pytest.mark.parametrize("op_type", ["BiasGelu", "FastGelu"])
def test_activations_with_a_bias(agree: Any, rng: np.random.Generator, op_type: str) -> None:
    agree(op_type, [_floats(rng, 2, 3, 7), _floats(rng, 7)])


def test_quick_gelu_takes_alpha(agree: Any, rng: np.random.Generator) -> None:
    agree("QuickGelu", [_floats(rng, 3, 5)], alpha=0.7)


@pytest.mark.parametrize("optional", [0, 1, 2])
@pytest.mark.parametrize("skip", [(2, 3, 8), (3, 8), (1, 3, 8)], ids=str)
def test_skip_layer_normalization(agree: Any, rng: np.random.Generator, optional: int, skip: tuple[int, ...]) -> None:
    vectors = [_floats(rng, 8), *(_floats(rng, 8) for _ in range(optional))]
    arrays = [_floats(rng, 2, 3, 8), _floats(rng, *skip), *vectors]
    agree("SkipLayerNormalization", arrays, epsilon=1e-5)
    simplified = [*arrays[:3], *arrays[4:]]
    agree("SkipSimplifiedLayerNormalization", simplified, epsilon=1e-5)


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_sum_before_the_normalization_is_an_output(core: Any, rng: np.random.Generator, op_type: str) -> None:
    g = dovetail.GraphBuilder()
    x, skip, gamma = (g.input(name, "float32", shape) for name, shape in (("x", (2, 5)), ("skip", (2, 5)), ("gamma", (5,))))
    op = UnboundOperator("com.microsoft", op_type, 1, {})
    model = g.model([g.node(op, x, skip, gamma, outputs=["y", "", "", "sum"])[0], "sum"])
    arrays = {"x": _floats(rng, 2, 5), "skip": _floats(rng, 2, 5), "gamma": _floats(rng, 5)}
    with core.compile_model(model, "NUMPY") as compiled:
        np.testing.assert_array_equal(compiled(arrays)["sum"], arrays["x"] + arrays["skip"])


def test_simplified_layer_normalization(agree: Any, rng: np.random.Generator) -> None:
    for axis, size in ((-1, (5,)), (1, (3, 5))):
        agree("SimplifiedLayerNormalization", [_floats(rng, 2, 3, 5), _floats(rng, *size)], domain="", axis=axis, epsilon=1e-5)


@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("mask", [True, False])
@pytest.mark.parametrize("positions", [True, False])
def test_embed_layer_normalization(agree: Any, rng: np.random.Generator, segments: bool, mask: bool, positions: bool) -> None:
    ids = rng.integers(0, 11, (2, 5)).astype(np.int32)
    arrays = [
        ids,
        rng.integers(0, 2, (2, 5)).astype(np.int32) if segments else None,
        _floats(rng, 11, 8),
        _floats(rng, 9, 8),
        _floats(rng, 2, 8) if segments else None,
        _floats(rng, 8),
        _floats(rng, 8),
        np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32) if mask else None,
        rng.integers(0, 9, (2, 5)).astype(np.int32) if positions else None,
    ]
    agree("EmbedLayerNormalization", arrays, outputs=2)


@pytest.mark.parametrize("interleaved", [0, 1])
@pytest.mark.parametrize("offset", [True, False])
@pytest.mark.parametrize("rank", [3, 4])
def test_rotary_embedding(agree: Any, rng: np.random.Generator, interleaved: int, offset: bool, rank: int) -> None:
    x = _floats(rng, 2, 5, 24) if rank == 3 else _floats(rng, 2, 3, 5, 8)
    angles = rng.uniform(-3, 3, (9, 4)).astype(np.float32)
    ids = np.array([2]) if offset else rng.integers(0, 9, (2, 5))
    agree("RotaryEmbedding", [x, ids, np.cos(angles), np.sin(angles)], interleaved=interleaved)


def test_rotary_embedding_of_a_part(agree: Any, rng: np.random.Generator) -> None:
    angles = rng.uniform(-3, 3, (9, 2)).astype(np.float32)
    arrays = [_floats(rng, 2, 5, 24), rng.integers(0, 9, (2, 5)), np.cos(angles), np.sin(angles)]
    agree("RotaryEmbedding", arrays, num_heads=3, rotary_embedding_dim=4)


@pytest.mark.parametrize("trans", [(0, 0), (1, 0), (0, 1), (1, 1)], ids=str)
def test_fused_mat_mul(agree: Any, rng: np.random.Generator, trans: tuple[int, int]) -> None:
    a = _floats(rng, 2, 7, 3) if trans[0] else _floats(rng, 2, 3, 7)
    b = _floats(rng, 5, 7) if trans[1] else _floats(rng, 7, 5)
    agree("FusedMatMul", [a, b], alpha=0.3, transA=trans[0], transB=trans[1])


@pytest.mark.parametrize("trans", [(0, 0), (1, 1)], ids=str)
def test_fused_mat_mul_with_the_batch_inside(agree: Any, rng: np.random.Generator, trans: tuple[int, int]) -> None:
    # [batch, M, K] with the batch moved: [M, batch, K]; with trans [K, batch, M].
    a = _floats(rng, 7, 2, 3) if trans[0] else _floats(rng, 3, 2, 7)
    b = _floats(rng, 5, 2, 7) if trans[1] else _floats(rng, 7, 2, 5)
    agree("FusedMatMul", [a, b], transA=trans[0], transB=trans[1], transBatchA=1, transBatchB=1)


@pytest.mark.parametrize(
    ("activation", "params"),
    [("Relu", []), ("Tanh", []), ("Sigmoid", []), ("LeakyRelu", [0.2]), ("Clip", [-0.5, 0.75]), ("HardSigmoid", [0.3, 0.4])],
    ids=str,
)
@pytest.mark.parametrize("added", [True, False])
def test_fused_conv(agree: Any, rng: np.random.Generator, activation: str, params: list[float], added: bool) -> None:
    arrays = [_floats(rng, 2, 4, 7, 5), _floats(rng, 6, 2, 3, 3), _floats(rng, 6), _floats(rng, 2, 6, 7, 5) if added else None]
    attributes = {"activation_params": params} if params else {}
    agree("FusedConv", arrays, group=2, pads=[1, 1, 1, 1], activation=activation, **attributes)


@pytest.mark.parametrize(
    ("activation", "params"),
    [
        ("Relu", {}),
        ("Tanh", {}),
        ("Sigmoid", {}),
        ("Softplus", {}),
        ("Softsign", {}),
        ("LeakyRelu", {"activation_alpha": 0.2}),
        ("Elu", {"activation_alpha": 0.7}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("Selu", {"activation_alpha": 1.3, "activation_gamma": 0.9}),
        ("ThresholdedRelu", {"activation_alpha": 0.5}),
    ],
    ids=str,
)
def test_fused_gemm(agree: Any, rng: np.random.Generator, activation: str, params: dict[str, float]) -> None:
    a, b, c = _floats(rng, 7, 3), _floats(rng, 5, 7), _floats(rng, 5)
    common = {"transA": 1, "transB": 1, "alpha": 0.7, "beta": 1.3, "activation": activation, **params}
    agree("FusedGemm", [a, b, c], **common)
    agree("FusedGemm", [a, b], device="ONEDNN", **common)


def test_transpose_mat_mul(agree: Any, rng: np.random.Generator) -> None:
    agree("TransposeMatMul", [_floats(rng, 2, 7, 3), _floats(rng, 5, 7)], alpha=0.3, transA=1, transB=1)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4, 5, 5), (0, 2, 2)], ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16])
def test_inverse(agree: Any, rng: np.random.Generator, shape: tuple[int, ...], dtype: Any) -> None:
    x = (_floats(rng, *shape) + 4 * np.eye(shape[-1])).astype(dtype)
    agree("Inverse", [x], tolerance=F16 if dtype is np.float16 else 1e-4)


@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("size", [(1, 1), (1, 4), (5, 3)], ids=str)
def test_crop_and_resize(agree: Any, rng: np.random.Generator, mode: str, size: tuple[int, int]) -> None:
    boxes = rng.uniform(-0.2, 1.2, (6, 4)).astype(np.float32)
    boxes[0], boxes[1] = (0, 0, 1, 1), (0.7, 0.8, 0.2, 0.1)
    images = rng.integers(0, 2, 6).astype(np.int32)
    arrays = [_floats(rng, 2, 3, 7, 9), boxes, images, np.array(size, np.int32)]
    agree("CropAndResize", arrays, constants=(3,), mode=mode, extrapolation_value=0.25)
    agree("CropAndResize", arrays, mode=mode)


@pytest.mark.parametrize("size", [1, 2, 3, 9])
def test_n_gram_repeat_block(agree: Any, rng: np.random.Generator, size: int) -> None:
    agree("NGramRepeatBlock", [rng.integers(0, 3, (4, 8)), _floats(rng, 4, 5)], ngram_size=size)


def test_the_operators_that_the_standard_has_taken_over(agree: Any, rng: np.random.Generator) -> None:
    x = _floats(rng, 2, 3, 4, 5)
    for upper, k in ((0, None), (1, None), (0, np.array(1)), (1, np.array(-2))):
        agree("Trilu", [x, k], upper=upper)
    for axis in (0, 2, 4, -1, -5):
        agree("ExpandDims", [x, np.array(axis, np.int32)], constants=(1,))
    agree("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], outputs=3)
    agree("GatherND", [x, np.array([[1, 2], [0, -1]], np.int32)])
    agree("GatherND", [x, np.array([[1, 2], [0, -1]], np.int64)])
    agree("Pad", [x, np.array([[0, 1, 0, 2, 1, 0, 2, 0]]), np.array([0.5], np.float32)], constants=(1,), mode="constant")
    agree("Pad", [x, np.array([0, 1, 0, 2, 1, 0, 2, 0])], constants=(1,), mode="reflect")
    agree("ConvTransposeWithDynamicPads", [x, _floats(rng, 3, 2, 3, 3), np.array([0, 1, 1, 0]), _floats(rng, 2)], strides=[2, 2])
    agree("ConvTransposeWithDynamicPads", [x, _floats(rng, 3, 2, 3, 3), np.array([1, 1, 0, 0])], strides=[2, 1], constants=(2,))


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.int64])
@pytest.mark.parametrize("shape", [(), (1,)])
@pytest.mark.parametrize("step", [True, False])
def test_range(agree: Any, dtype: Any, shape: tuple[int, ...], step: bool) -> None:
    ends = [np.full(shape, number, dtype) for number in ((2, 11, 3) if step else (2, 11))]
    agree("Range", ends)
    agree("Range", ends, constants=(0, 1, 2))


@pytest.mark.parametrize("align", [0, 1])
@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(agree: Any, rng: np.random.Generator, align: int, mode: str, padding: str) -> None:
    grid = rng.uniform(-1.2, 1.2, (2, 4, 3, 2)).astype(np.float32)
    agree("GridSample", [_floats(rng, 2, 3, 5, 7), grid], align_corners=align, mode=mode, padding_mode=padding)


def test_a_matrix_without_an_inverse_is_an_error() -> None:
    with pytest.raises(OperatorError, match="without an inverse"):
        Inverse().reference(np.ones((2, 2), np.float32))


def _packed(rng: np.random.Generator, rows: int, count: int, bits: int) -> Any:
    return rng.integers(0, 256, (rows, -(-count * bits // 8))).astype(np.uint8)


@pytest.fixture(params=["small", "packed"])
def product(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The operator that a MatMulNBits becomes: of floats, as the sizes of these tests give it, and of what stays packed."""
    if request.param == "packed":
        monkeypatch.setattr(mat_mul_n_bits, "_SMALL", 0)
    return "MatMul" if request.param == "small" else "dovetail::MatMulBlocks"


@pytest.mark.parametrize(
    ("bits", "zeros"), [(4, "none"), (4, "packed"), (4, "floats"), (8, "none"), (8, "packed")]
)  # onnxruntime takes floats as zero points for 4 bits only
@pytest.mark.parametrize(("k", "n", "block"), [(32, 5, 16), (40, 8, 16), (129, 3, 16), (70, 3, 32), (64, 5, 64), (300, 2, 128)])
def test_mat_mul_n_bits(agree: Any, rng: Any, bits: int, zeros: str, k: int, n: int, block: int, product: str) -> None:
    blocks = -(-k // block)
    weights = rng.integers(0, 256, (n, blocks, block * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.05, 0.2, (n, blocks)).astype(np.float32)
    zero = {"none": None, "packed": _packed(rng, n, blocks, bits), "floats": rng.uniform(0, 8, (n, blocks)).astype(np.float32)}
    arrays = [_floats(rng, 2, 3, k), weights, scales, zero[zeros], None, _floats(rng, n)]
    report = agree("MatMulNBits", arrays, constants=(1, 2, 3, 4, 5), K=k, N=n, block_size=block, bits=bits, tolerance=1e-3)
    assert [node.op for node in report.nodes if "MatMul" in node.op] == [product]


@pytest.mark.parametrize(("n", "expected"), [(256, "MatMul"), (257, "dovetail::MatMulBlocks")])
@pytest.mark.parametrize("device", ["NUMPY", "OPENCL"])
def test_matrices_of_up_to_256_kib_become_floats(agree: Any, rng: Any, n: int, expected: str, device: str) -> None:
    weights, scales = rng.integers(0, 256, (n, 8, 16)).astype(np.uint8), rng.uniform(0.05, 0.2, (n, 8)).astype(np.float32)
    attributes = {"K": 256, "N": n, "block_size": 32}
    arrays = [_floats(rng, 12, 256), weights, scales]
    report = agree("MatMulNBits", arrays, constants=(1, 2), tolerance=1e-3, device=device, **attributes)
    assert expected in [node.op for node in report.nodes]


@pytest.mark.usefixtures("product")
def test_plans_for_other_shapes_share_the_weights(core: Any, rng: np.random.Generator) -> None:
    g = dovetail.GraphBuilder()
    packed, scales = rng.integers(0, 256, (5, 2, 16)).astype(np.uint8), rng.uniform(1, 2, (5, 2)).astype(np.float32)
    x = g.input("x", "float32", ("rows", 64))
    op = UnboundOperator("com.microsoft", "MatMulNBits", 1, {"K": 64, "N": 5, "block_size": 32})
    model = g.model([g.node(op, x, g.constant(packed), g.constant(scales))])
    with core.compile_model(model, "NUMPY") as compiled:
        found = []
        for rows in (1, 2, 7):
            (step,) = compiled.plan(((rows, 64),)).steps
            (matrix,) = (a for a in step.executable.constants.values() if a.size in (64 * 5, 32 * 5))
            found.append(matrix.ctypes.data)
    assert len(set(found)) == 1


def test_mat_mul_n_bits_with_an_order_of_columns(core: Any, rng: np.random.Generator, product: str) -> None:
    op = MatMulNBits(K=48, N=3, block_size=16, bits=4)
    a, packed = _floats(rng, 2, 48), rng.integers(0, 256, (3, 3, 8)).astype(np.uint8)
    scales, groups = rng.uniform(0.1, 1, (3, 3)).astype(np.float32), rng.permutation(np.repeat(np.arange(3), 16)).astype(np.int32)
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", a.shape)
    y = g.node(op, x, g.constant(packed), g.constant(scales), "", g.constant(groups))
    numbers = np.stack((packed & 15, packed >> 4), -1).reshape(3, 48).astype(np.float64)
    weights = (numbers - 8) * scales[:, groups]
    with core.compile_model(g.model([y]), "NUMPY") as compiled:
        np.testing.assert_allclose(compiled(a)[0], a @ weights.T, rtol=1e-4, atol=1e-4)
        assert {node.op for node in compiled.report().nodes} == ({"MatMul"} if product == "MatMul" else {"Gather", product})


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("op_type", ["QLinearAdd", "QLinearMul"])
def test_sums_and_products_of_bytes(agree: Any, rng: np.random.Generator, op_type: str, dtype: Any) -> None:
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max + 1
    a, b = (rng.integers(low, high, shape).astype(dtype) for shape in ((3, 1, 7), (5, 7)))
    scales = [np.float32(s) for s in (0.031, 0.017, 0.043)]
    zeros = [dtype(z) for z in (7, 3, 11)]
    arrays = [
        a,
        np.array(scales[0]),
        np.array(zeros[0]),
        b,
        np.array(scales[1]),
        np.array(zeros[1]),
        *map(np.array, (scales[2], zeros[2])),
    ]
    agree(op_type, arrays, constants=(1, 2, 4, 5, 6, 7), steps=1)
    agree(op_type, arrays[:7], constants=(1, 2, 4, 5, 6), steps=1)


@pytest.mark.parametrize("dtype", [np.uint8, np.int8])
@pytest.mark.parametrize("channels_last", [0, 1])
def test_pools_of_bytes(agree: Any, rng: np.random.Generator, dtype: Any, channels_last: int) -> None:
    x = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (2, 7, 5, 3)).astype(dtype)
    arrays = [x, *(np.array(v) for v in (np.float32(0.03), dtype(5), np.float32(0.021), dtype(9)))]
    constants = (1, 2, 3, 4)
    agree("QLinearGlobalAveragePool", arrays, constants=constants, channels_last=channels_last, steps=1)
    for more in ({}, {"pads": [1, 1, 1, 1], "count_include_pad": 1}, {"strides": [2, 1], "ceil_mode": 1}):
        agree(
            "QLinearAveragePool", arrays, constants=constants, kernel_shape=[3, 2], channels_last=channels_last, steps=1, **more
        )


@pytest.mark.parametrize("dtype", [np.uint8, np.int8, np.int16, np.uint16])
@pytest.mark.parametrize("by_axis", [True, False])
def test_quantize_and_dequantize(agree: Any, rng: np.random.Generator, dtype: Any, by_axis: bool) -> None:
    size = (3,) if by_axis else ()
    scale = rng.uniform(0.01, 0.1, size).astype(np.float32)
    zero = rng.integers(0, 100, size).astype(dtype)
    x = _floats(rng, 2, 3, 5)
    q = rng.integers(np.iinfo(dtype).min, np.iinfo(dtype).max + 1, (2, 3, 5)).astype(dtype)
    agree("QuantizeLinear", [x, np.asarray(scale), np.asarray(zero)], axis=1)
    agree("DequantizeLinear", [q, np.asarray(scale), np.asarray(zero)], axis=1)


def test_dequantize_without_a_zero_point(agree: Any, rng: np.random.Generator) -> None:
    agree("DequantizeLinear", [rng.integers(0, 99, (4, 5)).astype(np.uint8), np.array(0.1, np.float32)])


@pytest.mark.parametrize("dtype", [np.float16])
def test_float16(agree: Any, rng: np.random.Generator, dtype: Any) -> None:
    x, v = _floats(rng, 2, 3, 8, dtype=dtype), [_floats(rng, 8, dtype=dtype) for _ in range(3)]
    agree("SkipLayerNormalization", [x, x, *v], tolerance=1e-2, epsilon=1e-5)
    agree("FastGelu", [x, v[0]], tolerance=F16)


@pytest.mark.parametrize("device", ["ONEDNN", "OPENCL"])
def test_compositions_run_on_other_devices(agree: Any, rng: np.random.Generator, device: str) -> None:
    report = agree(
        "SkipLayerNormalization", [_floats(rng, 2, 3, 8), _floats(rng, 2, 3, 8), _floats(rng, 8), _floats(rng, 8)], device=device
    )
    assert {node.device.partition(".")[0] for node in report.nodes} == {device}
    qkv = [_floats(rng, 2, 5, 12) for _ in range(3)]
    report = agree("MultiHeadAttention", qkv, device=device, num_heads=3)
    assert device in {node.device.partition(".")[0] for node in report.nodes}


@pytest.mark.parametrize("direction", ["forward", "bidirectional"])
def test_dynamic_quantize_lstm_is_nearer_to_the_float_network(rng: np.random.Generator, core: Any, direction: str) -> None:
    """Quantized by onnxruntime's own quantizer from an LSTM; judged against that LSTM with the weights that are left."""
    onnxruntime = pytest.importorskip("onnxruntime")
    dirs, size, hidden = 2 if direction == "bidirectional" else 1, 6, 8
    x = _floats(rng, 5, 2, size)
    weights = [rng.integers(-127, 128, (dirs, n, 4 * hidden)).astype(np.int8) for n in (size, hidden)]
    scales = [np.full(dirs, 0.01, np.float32)] * 2
    zeros = [np.zeros(dirs, np.int8)] * 2
    b = _floats(rng, dirs, 8 * hidden)
    arrays = {"W": weights[0], "R": weights[1], "B": b, "Ws": scales[0], "Wz": zeros[0], "Rs": scales[1], "Rz": zeros[1]}
    names = ["x", "W", "R", "B", "", "", "", "", "Ws", "Wz", "Rs", "Rz"]
    attributes: dict[str, Any] = {"direction": direction, "hidden_size": hidden}
    node = helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", **attributes)
    plain = helper.make_node("LSTM", ["x", "W", "R", "B"], ["y"], **attributes)
    floats = {"W": weights[0] * 0.01, "R": weights[1] * 0.01}
    wide = {name: array.transpose(0, 2, 1).astype(np.float64) for name, array in floats.items()} | {"B": b.astype(np.float64)}
    content, exact = _model(node, arrays, TensorProto.FLOAT), _model(plain, wide, TensorProto.DOUBLE)
    want = core.compile_model(core.read_model(exact, "onnx"), "NUMPY")([x.astype(np.float64)])["y"]
    theirs = onnxruntime.InferenceSession(content).run(None, {"x": x})[0]
    ours = core.compile_model(core.read_model(content, "onnx"), "NUMPY")([x])["y"]
    assert np.abs(ours - want).max() < 1e-5
    assert 1e-5 < np.abs(theirs - want).max() < 0.05


def _model(node: Any, arrays: dict[str, Any], kind: int) -> bytes:
    infos = [helper.make_tensor_value_info(name, kind, None) for name in ("x", "y")]
    infos[0] = helper.make_tensor_value_info("x", kind, [5, 2, 6])
    constants = [numpy_helper.from_array(array, name) for name, array in arrays.items()]
    graph = helper.make_graph([node], "g", infos[:1], infos[1:], constants)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString())


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances(agree: Any, rng: np.random.Generator, metric: str, dtype: Any) -> None:
    for rows in (1, 7):
        agree("CDist", [_floats(rng, rows, 5, dtype=dtype), _floats(rng, 9, 5, dtype=dtype)], metric=metric)


def test_distances_of_many_rows_are_right_near_each_other(core: Any, rng: np.random.Generator) -> None:
    a = (1000 + rng.standard_normal((300, 3))).astype(np.float32)
    g = dovetail.GraphBuilder()
    x, y = g.input("x", "float32", ("M", 3)), g.input("y", "float32", ("K", 3))
    model = g.model([g.node(CDist(metric="euclidean"), x, y)])
    want = np.sqrt(((a[:, None].astype(np.float64) - a[None]) ** 2).sum(-1))
    with core.compile_model(model, "NUMPY") as compiled:
        np.testing.assert_allclose(compiled({"x": a, "y": a})[0], want, rtol=1e-5, atol=1e-4)


_TOKENS: list[dict[str, Any]] = [
    {"separators": [" "]},
    {"separators": ["[, ]+", "a", "ab"]},
    {"separators": ["ab", "(a)", "^b"]},
    {"separators": [""]},
    {"tokenexp": "."},
    {"tokenexp": "[a-z0-9_]+"},
    {"tokenexp": r"\b\w\w+\b"},
    {"tokenexp": "a|(a)b|b*"},
    {"tokenexp": "^a"},
    {"tokenexp": "é."},
]


@pytest.mark.parametrize("attributes", _TOKENS, ids=str)
@pytest.mark.parametrize("mark", [0, 1])
def test_tokenizer(agree: Any, rng: np.random.Generator, attributes: dict[str, Any], mark: int) -> None:
    shortest = 1 if attributes in ({"separators": [""]}, {"tokenexp": "."}) else 2
    for shape in ((1,), (6,), (2, 3)):
        texts = ["".join(rng.choice(list("aabbcé, _\n"), size=size)) for size in rng.integers(0, 15, np.prod(shape))]
        x = np.array(texts, object).reshape(shape)
        for mincharnum in {1, shortest}:
            agree("Tokenizer", [x], mark=mark, mincharnum=mincharnum, pad_value="#", **attributes)
        agree("Tokenizer", [np.full(shape, "", object)], mark=mark, mincharnum=1, pad_value="#", **attributes)


@pytest.mark.parametrize("dtype", ["O", np.int32, np.uint32, np.int64, np.uint64, np.float32, np.float64], ids=str)
@pytest.mark.parametrize("attributes", [{}, {"positive": 0, "seed": 5}], ids=["plain", "signed"])
def test_murmur_hash(agree: Any, rng: np.random.Generator, dtype: Any, attributes: dict[str, int]) -> None:
    numbers = rng.integers(0, 10**6, (3, 4))
    x = np.array(["é" * (n % 9) + str(n) for n in numbers.flat], object).reshape(3, 4) if dtype == "O" else numbers.astype(dtype)
    agree("MurmurHash3", [x], **attributes)


_REFUSED: list[dict[str, Any]] = [
    {},
    {"tokenexp": ""},
    {"separators": ("x*",)},
    {"tokenexp": "["},
    {"tokenexp": "a", "mincharnum": 0},
    {"tokenexp": ".", "mincharnum": 2},
]


@pytest.mark.parametrize("attributes", _REFUSED, ids=str)
def test_tokenizer_refuses(attributes: dict[str, Any]) -> None:
    with pytest.raises(OperatorError, match=r"accepted|RE2"):
        Tokenizer(**{"mark": 0, "mincharnum": 1, "pad_value": "", **attributes}).reference(np.array(["a"], object))


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_products_of_halves_without_conversions_between_them(core: dovetail.Core, rng: Any, device: str) -> None:
    g, x = dovetail.GraphBuilder(), rng.standard_normal((3, 40)).astype(np.float16)
    y, want = g.input("x", "float16", [3, 40]), x.astype(np.float64)
    for k, n in ((40, 48), (48, 64)):
        packed = rng.integers(0, 256, (n, -(-k // 16), 8)).astype(np.uint8)
        scales = rng.uniform(0.01, 0.05, (n, packed.shape[1])).astype(np.float16)
        y = g.node(MatMulNBits(K=k, N=n, block_size=16), y, g.constant(packed), g.constant(scales))
        y = g.node(Gelu(), y)
        numbers = np.stack((packed & 15, packed >> 4), -1).reshape(n, -1)[:, :k] - 8.0
        want = want @ (numbers * scales.astype(np.float64).repeat(16, 1)[:, :k]).T
        want = want * (1 + np.vectorize(math.erf)(want / math.sqrt(2))) / 2
    with core.compile_model(g.model([y]), device) as compiled:
        found = compiled({"x": x})[0]
        assert found.dtype == np.float16
        np.testing.assert_allclose(found.astype(np.float64), want, rtol=0.01, atol=0.01)
        assert [node.op for node in compiled.report().nodes].count("Cast") == 2


@pytest.mark.parametrize("kind", [0, 1])
@pytest.mark.parametrize(("k", "n", "block"), [(64, 5, 32), (96, 7, 64), (40, 6, 16)])
def test_mat_mul_bnb4(agree: Any, rng: np.random.Generator, kind: int, k: int, n: int, block: int) -> None:
    absmax = rng.uniform(0.1, 2, -(-n * k // block)).astype(np.float32)
    packed = rng.integers(0, 256, -(-n * k // 2)).astype(np.uint8)
    arrays = [rng.standard_normal((2, 3, k)).astype(np.float32), packed, absmax]
    agree("MatMulBnb4", arrays, constants=(1, 2), K=k, N=n, block_size=block, quant_type=kind)
