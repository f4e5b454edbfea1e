"""Models that onnxruntime's tool has quantized, in its three forms, on every device against onnxruntime itself."""

import logging
import warnings
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail

DEVICES = ("NUMPY", "ONEDNN", "OPENCL")


def network() -> onnx.ModelProto:
    """Two convolutions with a residual sum, one of them depthwise, a pool, and two products; odd channels."""
    rng = np.random.default_rng(4)

    def weights(name: str, *shape: int) -> onnx.TensorProto:
        scale = np.prod(shape[1:]) ** -0.5
        return numpy_helper.from_array((rng.standard_normal(shape) * scale).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["c1"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"]),
        helper.make_node("Conv", ["r1", "w2"], ["c2"], pads=[1, 1, 1, 1], group=17),
        helper.make_node("Conv", ["c2", "w3"], ["c3"]),
        helper.make_node("Add", ["c3", "r1"], ["s"]),
        helper.make_node("Relu", ["s"], ["r2"]),
        helper.make_node("MaxPool", ["r2"], ["m"], kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["m"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "w4", "b4"], ["h"], transB=1),
        helper.make_node("MatMul", ["h", "w5"], ["y"]),
    ]
    constants = [weights("w1", 17, 3, 3, 3), weights("b1", 17), weights("w2", 17, 1, 3, 3), weights("w3", 17, 17, 1, 1)]
    constants += [weights("w4", 9, 17), weights("b4", 9), weights("w5", 9, 5)]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 10])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 5])
    graph = helper.make_graph(nodes, "network", [x], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def images(count: int) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(5)
    return [{"x": rng.standard_normal((1, 3, 12, 10)).astype(np.float32)} for _ in range(count)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `QDQ.onnx`, `QOperator.onnx` and `dynamic.onnx`."""
    from onnxruntime import quantization as tool

    class Images(tool.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = iter(images(8))

        def get_next(self) -> dict[str, np.ndarray] | None:
            return next(self.left, None)

    path = tmp_path_factory.mktemp("quantized")
    onnx.save(network(), path / "float32.onnx")
    logging.disable(logging.WARNING)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for layout, options in (("QDQ", {}), ("QOperator", {"op_types_to_quantize": ["Conv", "MatMul"]})):
            tool.quantize_static(
                str(path / "float32.onnx"),
                str(path / f"{layout}.onnx"),
                Images(),
                quant_format=tool.QuantFormat[layout],
                per_channel=True,
                activation_type=tool.QuantType.QUInt8,
                weight_type=tool.QuantType.QInt8,
                **options,
            )
        tool.quantize_dynamic(str(path / "float32.onnx"), str(path / "dynamic.onnx"), weight_type=tool.QuantType.QInt8)
    logging.disable(logging.NOTSET)
    return path


def quantum(path: Path) -> float:
    """The step of the result: that of the last QuantizeLinear, or of what a product of int8 numbers resolves."""
    model = onnx.load(path)
    constants = {one.name: numpy_helper.to_array(one) for one in model.graph.initializer}
    last = [n for n in model.graph.node if n.op_type in ("QuantizeLinear", "QLinearMatMul")][-1:]
    return float(constants[last[0].input[1 if last[0].op_type == "QuantizeLinear" else 6]].max()) if last else 0.01


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", ["QDQ", "QOperator", "dynamic"])
def test_within_one_quantum_of_onnxruntime(folder: Path, name: str, device: str) -> None:
    path = folder / f"{name}.onnx"
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    compiled = dovetail.Core().compile_model(path, device)
    step = quantum(path)
    for feeds in images(4):
        (want,) = session.run(None, feeds)
        (got,) = compiled(feeds).values()
        assert np.abs(got - want).max() <= 1.01 * step
        assert np.abs(want).max() > 20 * step


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dead", [1e-20, 1e-29, 1e-37, 0.0])
def test_scales_of_channels_without_weights(dead: float, device: str) -> None:
    """The bias of such a channel, counted in units of its sums, may be beyond float32."""
    rng = np.random.default_rng(7)
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["weights"], axis=0),
        helper.make_node("Conv", ["real", "weights", "b"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "ys", "yz"], ["y"]),
    ]
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(120),
        "ys": np.float32(0.05),
        "yz": np.uint8(3),
        "w": rng.integers(-127, 128, (4, 3, 3, 3), np.int8),
        "ws": np.array([0.01, dead, 0.02, dead], np.float32),
        "wz": np.zeros(4, np.int8),
        "b": np.array([1, 1, -1, 2], np.float32),
    }
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [1, 3, 5, 5])
    y = helper.make_tensor_value_info("y", TensorProto.UINT8, [1, 4, 3, 3])
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "dead", [x], [y], arrays)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    feeds = {"x": rng.integers(0, 256, (1, 3, 5, 5), np.uint8)}
    options = onnxruntime.SessionOptions()
    # Its optimizations lose such a bias.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    (want,) = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"]).run(None, feeds)
    core = dovetail.Core()
    (got,) = core.compile_model(core.read_model(model, "onnx"), device)(feeds).values()
    np.testing.assert_array_equal(got[:, 1::2], want[:, 1::2])
    np.testing.assert_allclose(got.astype(int), want.astype(int), atol=1)
    assert got[:, 1::2].min() == 23


def has_products_of_int8(device: str) -> bool:
    """Whether the device multiplies stored numbers; ONEDNN does where the CPU has instructions for that."""
    from dovetail_cpu_onednn.library import library

    return device == "OPENCL" or (device == "ONEDNN" and library().has_int8)


def test_onednn_runs_all_of_it_by_int8_primitives(folder: Path) -> None:
    if not has_products_of_int8("ONEDNN"):
        pytest.skip("this CPU has no instructions for 8-bit products")
    compiled = dovetail.Core().compile_model(folder / "QDQ.onnx", "ONEDNN")
    compiled(images(1)[0])
    found = [node.op for node in compiled.report().nodes if node.op not in ("dovetail::Reorder", "Flatten", "MaxPool")]
    products = ["Conv", "Conv", "Conv", "GlobalAveragePool", "Gemm", "MatMul"]
    assert [one for one in found if one.startswith("dovetail::")] == [f"dovetail::Quantized{name}" for name in products]
    assert "Add" not in found


def test_a_quantized_model_with_bfloat16_between(folder: Path) -> None:
    """The hint lowers what is float32; what is quantized stays int8."""
    from dovetail_cpu_onednn.library import library

    if not library().has_bfloat16:
        pytest.skip("this CPU has no instructions for bfloat16")
    path, feeds = folder / "dynamic.onnx", images(1)[0]
    results = []
    for precision in ("f32", "bf16"):
        compiled = dovetail.Core().compile_model(path, "ONEDNN", {"INFERENCE_PRECISION_HINT": precision})
        results.append(next(iter(compiled(feeds).values())))
    assert np.abs(results[0] - results[1]).max() <= 0.05 * np.abs(results[0]).max()


def transformer() -> onnx.ModelProto:
    """Embeddings, attention of two heads, and a feed-forward layer, each with a sum and a normalization; as MiniLM has them."""
    rng = np.random.default_rng(6)
    tokens, width, heads, hidden = 7, 24, 2, 40
    sizes = {"words": (50, width), "q": (width, width), "k": (width, width), "v": (width, width), "o": (width, width)}
    sizes |= {"up": (width, hidden), "down": (hidden, width), "up_bias": (hidden,), "gain": (width,), "shift": (width,)}
    weights = {name: rng.standard_normal(size).astype(np.float32) * 0.3 for name, size in sizes.items()}
    weights |= {"root": np.float32([(width / heads) ** 0.5]), "half": np.float32([0.5]), "one": np.float32([1])}
    weights |= {"sqrt2": np.float32([2**0.5]), "split": np.array([1, tokens, heads, -1]), "joined": np.array([1, tokens, width])}
    nodes = [helper.make_node("Gather", ["words", "ids"], ["x"])]
    for name, perm in (("q", (0, 2, 1, 3)), ("k", (0, 2, 3, 1)), ("v", (0, 2, 1, 3))):
        nodes.append(helper.make_node("MatMul", ["x", name], [f"{name}_flat"]))
        nodes.append(helper.make_node("Reshape", [f"{name}_flat", "split"], [f"{name}_split"]))
        nodes.append(helper.make_node("Transpose", [f"{name}_split"], [f"{name}_heads"], perm=perm))
    for op, given, made in (
        ("MatMul", ["q_heads", "k_heads"], "raw"),
        ("Div", ["raw", "root"], "scores"),
        ("Softmax", ["scores"], "shares"),
        ("MatMul", ["shares", "v_heads"], "mixed"),
    ):
        nodes.append(helper.make_node(op, given, [made]))
    nodes.append(helper.make_node("Transpose", ["mixed"], ["turned"], perm=(0, 2, 1, 3)))
    for op, given, made in (
        ("Reshape", ["turned", "joined"], "flat"),
        ("MatMul", ["flat", "o"], "out"),
        ("Add", ["out", "x"], "sum"),
        ("LayerNormalization", ["sum", "gain", "shift"], "a"),
        ("MatMul", ["a", "up"], "u"),
        ("Add", ["u", "up_bias"], "b"),
        ("Div", ["b", "sqrt2"], "g"),
        ("Erf", ["g"], "e"),
        ("Add", ["e", "one"], "e1"),
        ("Mul", ["b", "e1"], "be"),
        ("Mul", ["be", "half"], "gelu"),
        ("MatMul", ["gelu", "down"], "d"),
        ("Add", ["d", "a"], "da"),
        ("LayerNormalization", ["da", "gain", "shift"], "y"),
    ):
        nodes.append(helper.make_node(op, given, [made]))
    constants = [numpy_helper.from_array(value, name) for name, value in weights.items()]
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, [1, tokens])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, tokens, width])
    graph = helper.make_graph(nodes, "transformer", [ids], [y], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


ON_OPENCL = {
    "QDQ": {"dovetail::QuantizedConv", "dovetail::QuantizedGemm", "dovetail::QuantizedMatMul"},
    "QOperator": {"dovetail::QuantizedConv", "dovetail::QuantizedMatMul"},
    "dynamic": {"DynamicQuantizeLinear", "dovetail::ConvIntegerToFloat", "dovetail::MatMulIntegerToFloat"},
}
"""Nodes that OPENCL runs: whole chains."""


@pytest.mark.parametrize("name", ["QDQ", "QOperator", "dynamic"])
def test_opencl_runs_all_of_it_alone(folder: Path, name: str) -> None:
    """Whole sums are exact, so the results are NUMPY's; sums of float32 may put one in another order into the next quantum."""
    feeds = images(1)[0]
    compiled = dovetail.Core().compile_model(folder / f"{name}.onnx", "OPENCL", {"FALLBACK": False})
    (got,), (want,) = compiled(feeds).values(), dovetail.Core().compile_model(folder / f"{name}.onnx", "NUMPY")(feeds).values()
    assert np.abs(got - want).max() <= 1.01 * quantum(folder / f"{name}.onnx")
    found = {node.op for node in compiled.report().nodes}
    assert found >= ON_OPENCL[name]
    if found & {"dovetail::QuantizedConv"}:
        assert not found & {"QLinearConv", "QLinearMatMul", "Add", "Conv"}


def test_opencl_runs_a_dynamically_quantized_transformer_alone(tmp_path: Path) -> None:
    """Numbers are quantized to 8 bits over their own range: a difference of the last bit may become one in 255 of that."""
    from onnxruntime import quantization as tool

    onnx.save(transformer(), tmp_path / "float32.onnx")
    logging.disable(logging.WARNING)
    tool.quantize_dynamic(str(tmp_path / "float32.onnx"), str(tmp_path / "dynamic.onnx"), weight_type=tool.QuantType.QInt8)
    logging.disable(logging.NOTSET)
    feeds = {"ids": np.random.default_rng(7).integers(0, 50, (1, 7))}
    compiled = dovetail.Core().compile_model(tmp_path / "dynamic.onnx", "OPENCL", {"FALLBACK": False})
    (got,), (want,) = compiled(feeds).values(), dovetail.Core().compile_model(tmp_path / "dynamic.onnx", "NUMPY")(feeds).values()
    assert np.abs(got - want).max() <= np.abs(want).max() / 255
    session = onnxruntime.InferenceSession(tmp_path / "float32.onnx", providers=["CPUExecutionProvider"])
    assert np.abs(got - session.run(None, feeds)[0]).max() <= 0.05 * np.abs(want).max()  # what 8 bits cost here
    nodes = compiled.report().nodes
    products = [node for node in nodes if node.op == "dovetail::MatMulIntegerToFloat"]
    assert len(products) == 6
    assert not any(node.name.endswith("_scales_mul") for node in nodes)  # scales are inputs of the products


ENDS = {
    "Conv": [("Conv", ["real", "weights", "b"])],
    "Relu": [("Conv", ["real", "weights", "b"]), ("Relu", ["v0"])],
    "LeakyRelu": [("Conv", ["real", "weights", "b"]), ("LeakyRelu", ["v0"])],
    "residual": [("Conv", ["real", "weights", "b"]), ("Add", ["v0", "real"])],
    "MatMul": [("MatMul", ["real", "matrix"])],
    "Add": [("Add", ["real", "real"])],
    "GlobalAveragePool": [("GlobalAveragePool", ["real"])],
    "Sigmoid": [("Sigmoid", ["real"])],
}
"""Operators from the value `real` on, before the last QuantizeLinear."""


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("end", ENDS)
def test_real_outputs_are_those_of_the_stored_numbers(end: str, device: str) -> None:
    """A DequantizeLinear at the end of a model, which goes along with the operators before it."""
    rng = np.random.default_rng(len(end))
    nodes = [
        helper.make_node("DequantizeLinear", ["x", "xs", "xz"], ["real"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["weights"], axis=0),
        helper.make_node("DequantizeLinear", ["m", "xs", "wz1"], ["matrix"]),
    ]
    nodes += [helper.make_node(op, names, [f"v{i}"]) for i, (op, names) in enumerate(ENDS[end])]
    nodes.append(helper.make_node("QuantizeLinear", [f"v{len(ENDS[end]) - 1}", "ys", "yz"], ["y"]))
    nodes.append(helper.make_node("DequantizeLinear", ["y", "ys", "yz"], ["real_y"]))
    constants = {
        "xs": np.float32(0.02),
        "xz": np.uint8(120),
        "ys": np.float32(0.013),
        "yz": np.uint8(71),
        "w": rng.integers(-127, 128, (5, 5, 1, 1), np.int8),
        "ws": rng.uniform(0.001, 0.004, 5).astype(np.float32),
        "wz": np.zeros(5, np.int8),
        "wz1": np.int8(0),
        "m": rng.integers(-127, 128, (9, 3), np.int8),
        "b": rng.standard_normal(5).astype(np.float32),
    }
    x = helper.make_tensor_value_info("x", TensorProto.UINT8, [2, 5, 7, 9])
    feeds = {"x": rng.integers(0, 256, (2, 5, 7, 9), np.uint8)}
    arrays = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    core, found = dovetail.Core(), {}
    for name, dtype in (("y", TensorProto.UINT8), ("real_y", TensorProto.FLOAT)):
        graph = helper.make_graph(nodes, "end", [x], [helper.make_tensor_value_info(name, dtype, None)], arrays)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
        compiled = core.compile_model(core.read_model(model, "onnx"), device)
        (found[name],) = compiled(feeds).values()
    (want,) = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"]).run(None, feeds)
    np.testing.assert_array_equal(found["real_y"], (found["y"].astype(np.float32) - 71) * constants["ys"])
    np.testing.assert_allclose(found["real_y"], want, rtol=0, atol=1.01 * 0.013)
    assert len(np.unique(found["y"])) > 7
    if has_products_of_int8(device) and end in ("Conv", "Relu", "residual", "MatMul"):
        assert "DequantizeLinear" not in {node.op for node in compiled.report().nodes}


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("zero", [np.uint16(0), np.uint16(31_000), np.int16(0)])
def test_sixteen_bits(zero: np.ndarray, device: str) -> None:
    """Values that are stored in 16 bits and read as real numbers are rounded where they are computed."""
    rng = np.random.default_rng(11)
    constants = {"w": rng.standard_normal((16, 9)).astype(np.float32), "s": np.float32(2**-12 * 1.3), "z": zero}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("QuantizeLinear", ["p", "s", "z"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "z"], ["d"]),
        helper.make_node("Transpose", ["d"], ["t"], perm=[1, 0]),
        helper.make_node("QuantizeLinear", ["t", "s", "z"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "s", "z"], ["e"]),
        helper.make_node("Neg", ["e"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [9, "n"])
    initializers = [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()]
    graph = helper.make_graph(nodes, "graph", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    compiled = dovetail.Core().compile_model(dovetail.Core().read_model(model, "onnx"), device)
    for rows in (0, 33, 2):
        feeds = {"x": rng.integers(-8, 9, (rows, 16)).astype(np.float32)}
        (want,), (got,) = session.run(None, feeds), compiled(feeds).values()
        assert np.abs(got - want).max(initial=0) <= 1.01 * constants["s"]
        assert (got == want).sum() >= 0.9 * want.size
    assert not {"QuantizeLinear", "DequantizeLinear"} & {node.op for node in compiled.report().nodes}
    feeds["x"] = np.full((5, 16), np.nan, np.float32)
    assert np.isnan(compiled(feeds)["y"]).all()
