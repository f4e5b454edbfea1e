"""The operators on quantized bytes against onnxruntime: both types, odd sizes, scales of columns, what is left out."""

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnxruntime_contrib.gather_block_quantized import GatherBlockQuantized
from dovetail_ops_onnxruntime_contrib.quantized_functions import QLinearConcat
from dovetail_ops_onnxruntime_contrib.quantized_products import QGemm

DTYPES = [np.uint8, np.int8]


def _bytes(rng: np.random.Generator, dtype: Any, *shape: int) -> Any:
    limits = np.iinfo(dtype)
    return rng.integers(limits.min, limits.max + 1, shape).astype(dtype)


def _scale(number: float) -> Any:
    return np.array(number, np.float32)


def _types(*arrays: Any) -> Any:
    return (None if a is None else TensorType.of(a) for a in arrays)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
@pytest.mark.parametrize(("op_type", "attributes"), [("QLinearSigmoid", {}), ("QLinearLeakyRelu", {"alpha": 0.3})])
def test_functions(agree: Any, rng: np.random.Generator, op_type: str, attributes: Any, dtype: Any, device: str) -> None:
    arrays = [_bytes(rng, dtype, 3, 1, 7), _scale(0.043), np.array(5, dtype), _scale(0.0041), np.array(-3 % 128, dtype)]
    agree(op_type, arrays, constants=(1, 2, 3, 4), steps=1, device=device, **attributes)
    agree(op_type, [arrays[0][:0], *arrays[1:]], constants=(1, 2, 3, 4), device=device, **attributes)


@pytest.mark.parametrize("op_type", ["QLinearSigmoid", "QLinearLeakyRelu"])
def test_functions_whose_scales_are_inputs(agree: Any, rng: np.random.Generator, op_type: str) -> None:
    arrays = [_bytes(rng, np.uint8, 3, 7), _scale(0.043), np.array(7, np.uint8), _scale(0.0041), np.array(2, np.uint8)]
    agree(op_type, arrays, steps=1)
    # onnxruntime needs a name, if an empty one, for the last zero point.
    agree(op_type, [*arrays[:2], None, arrays[3], None], steps=1)


def test_sums_of_bytes_are_fused_as_in_other_quantized_models(agree: Any, rng: np.random.Generator) -> None:
    if not pytest.importorskip("dovetail_cpu_onednn.library").library().has_int8:
        pytest.skip("this CPU has no exact sums of 8-bit products")
    sides = [_bytes(rng, np.uint8, 2, 3, 5), _scale(0.03), np.array(100, np.uint8)]
    arrays = [*sides, _bytes(rng, np.uint8, 2, 3, 5), *sides[1:], _scale(0.05), np.array(9, np.uint8)]
    report = agree("QLinearAdd", arrays, constants=(1, 2, 4, 5, 6, 7), steps=1, device="ONEDNN")
    assert [node.op for node in report.nodes] == ["dovetail::QuantizedAdd"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("axis", "opset"), [(-1, 13), (1, 13), (0, 13), (-1, 12), (1, 12), (0, 12), (2, 11)])
def test_softmax(agree: Any, rng: np.random.Generator, axis: int, opset: int, dtype: Any) -> None:
    zero = np.array(np.iinfo(dtype).min, dtype)
    arrays = [_bytes(rng, dtype, 2, 3, 5), _scale(0.03), np.array(7, dtype), _scale(1 / 256), zero]
    agree("QLinearSoftmax", arrays, constants=(1, 2, 3, 4), steps=1, axis=axis, opset=opset)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_concat(agree: Any, rng: np.random.Generator, dtype: Any, device: str) -> None:
    # The second part has the scale of the result.
    target = [_scale(0.02), np.array(11, dtype)]
    first = [_bytes(rng, dtype, 2, 3, 5), _scale(0.033), np.array(4, dtype)]
    arrays = [*target, *first, _bytes(rng, dtype, 2, 1, 5), *target]
    report = agree("QLinearConcat", arrays, constants=(0, 1, 3, 4, 6, 7), steps=1, device=device, axis=1)
    assert sum(node.op.endswith("QuantizeLinear") for node in report.nodes) <= 2


def test_concat_refuses_other_inputs() -> None:
    with pytest.raises(OperatorError, match="in turn"):
        QLinearConcat(axis=0).infer(*_types(_scale(1), np.array(0, np.uint8), np.zeros((2, 3), np.uint8), _scale(1)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_where(agree: Any, rng: np.random.Generator, dtype: Any) -> None:
    condition = rng.integers(0, 2, (3, 1, 7)).astype(bool)
    x = [_bytes(rng, dtype, 3, 5, 7), _scale(0.031), np.array(4, dtype)]
    y = [_bytes(rng, dtype, 1, 5, 1), _scale(0.017), np.array(9, dtype)]
    z = [_scale(0.023), np.array(2, dtype)]
    agree("QLinearWhere", [condition, *x, *y, *z], constants=(2, 3, 5, 6, 7, 8), steps=1)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize(("trans", "alpha"), [((0, 0), 1.0), ((0, 1), 1.0), ((1, 0), 0.7), ((1, 1), 1.0)], ids=str)
@pytest.mark.parametrize(("a_type", "b_type"), [(np.uint8, np.int8), (np.uint8, np.uint8), (np.int8, np.int8)])
@pytest.mark.parametrize("stored", [True, False])
def test_gemm(
    agree: Any,
    rng: np.random.Generator,
    trans: Any,
    alpha: float,
    columns: bool,
    a_type: Any,
    b_type: Any,
    stored: bool,
    device: str,
) -> None:
    m, k, n = 5, 19, 7
    a = _bytes(rng, a_type, *((k, m) if trans[0] else (m, k)))
    b = _bytes(rng, b_type, *((n, k) if trans[1] else (k, n)))
    b_scale = rng.uniform(0.01, 0.02, n).astype(np.float32) if columns else _scale(0.013)
    b_zero = np.full(n, 3, b_type) if columns else np.array(3, b_type)
    c = rng.integers(-9000, 9000, n).astype(np.int32)
    arrays = [a, _scale(0.02), np.array(5, a_type), b, b_scale, b_zero, c]
    arrays += [_scale(0.3), np.array(17, a_type)] if stored else []
    constants = (1, 2, 3, 4, 5, 6, 7, 8)
    agree("QGemm", arrays, constants=constants, steps=1, device=device, transA=trans[0], transB=trans[1], alpha=alpha)
    arrays[6] = None
    agree("QGemm", arrays, constants=constants, steps=1, device=device, transA=trans[0], transB=trans[1], alpha=alpha)


@pytest.mark.parametrize("computed", [4, 5])
@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_constant_weights_whose_scale_or_zero_point_is_computed(
    agree: Any, rng: np.random.Generator, computed: int, device: str
) -> None:
    arrays = [_bytes(rng, np.uint8, 5, 19), _scale(0.02), np.array(5, np.uint8), _bytes(rng, np.int8, 19, 7)]
    arrays += [rng.uniform(0.01, 0.02, 7).astype(np.float32), np.full(7, 3, np.int8), rng.integers(-900, 900, 7).astype(np.int32)]
    constants = tuple({1, 2, 3, 4, 5} - {computed})
    agree("QGemm", arrays, constants=constants, tolerance=1e-4, device=device)


def test_gemm_refuses_half_a_result() -> None:
    x, zero = np.zeros((2, 2), np.uint8), np.array(0, np.uint8)
    with pytest.raises(OperatorError, match="both or none"):
        QGemm().infer(*_types(x, _scale(1), zero, x, _scale(1), zero, None, _scale(1)))
    with pytest.raises(ShapeError, match="a scalar or"):
        QGemm().infer(*_types(x, _scale(1), zero, x, np.ones(3, np.float32), zero))


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("b_type", DTYPES)
@pytest.mark.parametrize("bias", [True, False])
def test_dynamic_product(agree: Any, rng: np.random.Generator, columns: bool, b_type: Any, bias: bool, device: str) -> None:
    n = 7
    b = _bytes(rng, b_type, 19, n)
    scale = rng.uniform(0.01, 0.02, n).astype(np.float32) if columns else _scale(0.013)
    zero = rng.integers(0, 9, n).astype(b_type) if columns else np.array(3, b_type)
    x = rng.standard_normal((2, 3, 19)).astype(np.float32)
    arrays = [x, b, scale, zero, rng.standard_normal(n).astype(np.float32) if bias else None]
    # A value half way between two steps may be rounded to either: see the note on DynamicQuantizeLinear in the conformance page.
    agree("DynamicQuantizeMatMul", arrays, constants=(1, 2, 3, 4), tolerance=1e-3, device=device)
    agree("DynamicQuantizeMatMul", [*arrays[:3], None, arrays[4]], constants=(1, 2, 4), tolerance=1e-3, device=device)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("dtypes", [(np.uint8, np.int8), (np.int8, np.int8), (np.uint8, np.uint8)])
@pytest.mark.parametrize("optional", [True, False])
def test_product_as_floats(agree: Any, rng: np.random.Generator, columns: bool, dtypes: Any, optional: bool, device: str) -> None:
    n = 7
    a, b = _bytes(rng, dtypes[0], 2, 3, 19), _bytes(rng, dtypes[1], 19, n)
    scale = rng.uniform(0.01, 0.02, n).astype(np.float32) if columns else _scale(0.013)
    zero = rng.integers(0, 9, n).astype(dtypes[1]) if columns else np.array(3, dtypes[1])
    arrays = [a, b, _scale(0.3), scale]
    arrays += [np.array(8, dtypes[0]), zero, rng.standard_normal(n).astype(np.float32)] if optional else []
    agree("MatMulIntegerToFloat", arrays, constants=(1, 2, 3, 5, 6), device=device)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("last", [0, 1])
@pytest.mark.parametrize(
    ("group", "more"), [(1, {"pads": [1, 0, 1, 2]}), (2, {"strides": [2, 1]}), (4, {"dilations": [1, 2]})], ids=str
)
def test_conv(agree: Any, rng: np.random.Generator, last: int, group: int, more: Any, device: str) -> None:
    x = _bytes(rng, np.uint8, 2, 4, 9, 7)
    x = np.ascontiguousarray(np.moveaxis(x, 1, -1)) if last else x
    w, maps = _bytes(rng, np.int8, 8, 4 // group, 3, 3), 8
    scale = rng.uniform(0.01, 0.02, maps).astype(np.float32)
    weights = [w, scale, np.zeros(maps, np.int8)]
    bias = rng.integers(-900, 900, maps).astype(np.int32)
    arrays = [x, _scale(0.03), np.array(100, np.uint8), *weights, _scale(0.4), np.array(120, np.uint8), bias]
    agree("QLinearConv", arrays, constants=range(1, 9), steps=1, device=device, channels_last=last, group=group, **more)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("more", [{}, {"strides": [2, 1], "pads": [1, 0, 1, 1]}, {"ceil_mode": 1, "strides": [2, 2]}], ids=str)
def test_max_pool_channels_last(agree: Any, rng: np.random.Generator, dtype: Any, more: Any) -> None:
    agree("NhwcMaxPool", [_bytes(rng, dtype, 2, 7, 6, 5)], kernel_shape=[3, 2], **more)


MASKS: dict[str, Any] = {
    "none": None,
    "lengths": np.array([5, 3], np.int32),
    "keys": np.array([[1, 1, 1, 1, 1], [1, 1, 0, 1, 0]], np.int32),
}


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("columns", [True, False])
@pytest.mark.parametrize("w_type", DTYPES)
def test_attention(agree: Any, rng: np.random.Generator, mask: str, columns: bool, w_type: Any, device: str) -> None:
    x, w, bias = _bytes(rng, np.uint8, 2, 5, 16), _bytes(rng, w_type, 16, 36), rng.standard_normal(36).astype(np.float32)
    scale = rng.uniform(0.001, 0.002, 36).astype(np.float32) if columns else _scale(0.0013)
    zero = rng.integers(0, 9, 36).astype(w_type) if columns else np.array(3, w_type)
    arrays = [x, w, bias, _scale(0.03), scale, MASKS[mask], np.array(128, np.uint8), zero]
    agree("QAttention", arrays, constants=(1, 2, 3, 4, 6, 7), num_heads=3, tolerance=1e-3, device=device)


def test_attention_with_a_past(agree: Any, rng: np.random.Generator) -> None:
    x, w, bias = _bytes(rng, np.uint8, 2, 5, 16), _bytes(rng, np.int8, 16, 24), rng.standard_normal(24).astype(np.float32)
    past = rng.standard_normal((2, 2, 2, 3, 4)).astype(np.float32)
    ends = [_scale(0.03), _scale(0.0013), None, np.array(128, np.uint8), np.array(3, np.int8), past]
    agree(
        "QAttention", [x, w, bias, *ends], outputs=2, constants=(1, 2, 3, 4, 6, 7), num_heads=2, unidirectional=1, tolerance=1e-3
    )


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [True, False])
@pytest.mark.parametrize("mask", [True, False])
def test_embeddings(agree: Any, rng: np.random.Generator, dtype: Any, segments: bool, mask: bool) -> None:
    given = [True, True, segments, True, True]
    shapes = ((11, 8), (9, 8), (2, 8), (8,), (8,))
    tables = [_bytes(rng, dtype, *shape) if there else None for shape, there in zip(shapes, given, strict=True)]
    scales = [_scale(0.01 * (i + 1)) if there else None for i, there in enumerate(given)]
    zeros = [np.array(2 * i + 1, dtype) if there else None for i, there in enumerate(given)]
    ids = rng.integers(0, 11, (2, 5)).astype(np.int32)
    second = rng.integers(0, 2, (2, 5)).astype(np.int32) if segments else None
    kept = np.array([[1] * 5, [1, 1, 1, 0, 0]], np.int32) if mask else None
    arrays = [ids, second, *tables, kept, *scales, *zeros]
    agree("QEmbedLayerNormalization", arrays, outputs=2, constants=(2, 3, 4, 5, 6, *range(8, 18)), tolerance=1e-3)


def _four_bits(array: Any, name: str, kind: int) -> Any:
    return helper.make_tensor(name, kind, array.shape, array.reshape(-1).tolist())


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
@pytest.mark.parametrize(("bits", "columns", "dtype"), [(4, 80, np.float32), (4, 70, np.float16), (8, 33, np.float32)])
@pytest.mark.parametrize("zeros", [True, False])
@pytest.mark.parametrize("indices", [[[0, 4], [-1, 2]], [3], [[7], [-9]], [[2, -8, -7, 6]], []], ids=str)
def test_gather_of_bytes(
    agree: Any, rng: np.random.Generator, bits: int, columns: int, dtype: Any, zeros: bool, indices: Any, device: str
) -> None:
    blocks = -(-columns // 16)
    data = rng.integers(0, 256, (7, columns * bits // 8)).astype(np.uint8)
    scales = rng.uniform(0.1, 1, (7, blocks)).astype(dtype)
    zero = rng.integers(0, 256, (7, -(-blocks * bits // 8))).astype(np.uint8) if zeros else None
    arrays = [data, np.array(indices, np.int64), scales, zero]
    report = agree("GatherBlockQuantized", arrays, constants=(0, 2, 3), bits=bits, block_size=16, device=device)
    kernels = [(node.op, node.kernel) for node in report.nodes]
    if indices and device != "OPENCL":
        assert kernels == [("com.microsoft::GatherBlockQuantized", "gathered_blocks")]


@pytest.mark.parametrize("kind", [TensorProto.INT4, TensorProto.UINT4])
@pytest.mark.parametrize(("gather", "quantize"), [(0, 1), (1, 0), (0, 2), (2, 1)])
@pytest.mark.parametrize("zeros", [True, False])
def test_gather_of_four_bits(core: Any, rng: np.random.Generator, kind: int, gather: int, quantize: int, zeros: bool) -> None:
    onnxruntime = pytest.importorskip("onnxruntime")
    low = -8 if kind == TensorProto.INT4 else 0
    shape = (18, 20, 34)
    blocks = tuple(-(-d // 16) if axis == quantize else d for axis, d in enumerate(shape))
    data, zero = (rng.integers(low, low + 16, dims) for dims in (shape, blocks))
    scales = rng.uniform(0.1, 1, blocks).astype(np.float32)
    indices = np.array([[1, 5, -2]])
    constants = [_four_bits(data, "data", kind), numpy_helper.from_array(scales, "scales")]
    constants += [_four_bits(zero, "zeros", kind)] if zeros else []
    names = ["data", "indices", "scales", *(["zeros"] if zeros else [])]
    attributes: dict[str, Any] = {"gather_axis": gather, "quantize_axis": quantize, "block_size": 16}
    node = helper.make_node("GatherBlockQuantized", names, ["y"], domain="com.microsoft", **attributes)
    info = helper.make_tensor_value_info("indices", TensorProto.INT64, [1, 3])
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "g", [info], [result], constants)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    content = helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()
    want = onnxruntime.InferenceSession(content).run(None, {"indices": indices})[0]
    with core.compile_model(core.read_model(content, "onnx"), "NUMPY") as compiled:
        np.testing.assert_array_equal(compiled([indices])["y"], want)
    spread = [np.repeat(a, 16, quantize).take(range(shape[quantize]), quantize) for a in (scales.astype(np.float64), zero)]
    floats = (data - (spread[1] if zeros else 0)) * spread[0]
    np.testing.assert_allclose(want, floats.take(indices, gather), rtol=1e-6)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
def test_gather_from_an_empty_table_gives_zeros(core: Any, device: str) -> None:
    g = dovetail.GraphBuilder()
    constants = [g.constant(np.zeros(dims, kind)) for dims, kind in (((0, 8), np.uint8), ((0, 1), np.float32))]
    indices = g.input("indices", "int32", (2,))
    model = g.model([g.node(GatherBlockQuantized(block_size=16), constants[0], indices, constants[1])])
    with core.compile_model(model, device) as compiled:
        np.testing.assert_array_equal(compiled(np.array([0, -1], np.int32))[0], np.zeros((2, 16)))


def test_gather_refuses_other_shapes() -> None:
    data, index = np.zeros((4, 16), np.uint8), np.zeros(1, np.int64)
    with pytest.raises(ShapeError, match="'scales'"):
        GatherBlockQuantized(block_size=16).infer(*_types(data, index, np.ones((4, 1), np.float32)))
    with pytest.raises(ShapeError, match="two different ones"):
        GatherBlockQuantized(block_size=16, gather_axis=1).infer(*_types(data, index, np.ones((4, 2), np.float32)))
    with pytest.raises(OperatorError, match="2, 4 or 8 bits"):
        GatherBlockQuantized(bits=3)
