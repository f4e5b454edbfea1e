"""Models with quantizers: read from ONNX files under every name, folded, fused, and refused with a reason."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

import dovetail
from dovetail.errors import OperatorError, ShapeError, UnknownOperator
from dovetail.op import DType, TensorType
from dovetail.plugins import PluginManager, check_manifest
from dovetail_ops_qonnx import FloatQuant, MultiThreshold, Quant, QuantLSTMCell, Trunc
from dovetail_ops_qonnx._rounding import rounded_array
from dovetail_ops_qonnx.trunc import Trunc_1

GENERAL = "qonnx.custom_op.general"
Array = NDArray[Any]


def file_of(nodes: Sequence[Any], constants: dict[str, Any], domain: str, version: int) -> bytes:
    """An ONNX file from `x` [1, 3, 8, 8] to `y`."""
    weights = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in constants.items()]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, version)]
    model = helper.make_model(helper.make_graph(nodes, "graph", [x], [y], weights), opset_imports=opsets, ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def run(content: bytes, x: Array, device: str) -> tuple[Array, Any]:
    """The result, and the report."""
    core = dovetail.Core()
    with core.compile_model(core.read_model(content, format="onnx"), device) as compiled:
        return compiled([x])[0], compiled.report()


def scalars(*values: float) -> Any:
    """The types of known scalars."""
    return [TensorType.of(np.asarray(value, np.float32), known=True) for value in values]


@pytest.fixture
def x() -> Array:
    return np.random.default_rng(3).normal(size=(1, 3, 8, 8)).astype(np.float32)


@pytest.mark.parametrize(("domain", "name"), [(GENERAL, "Quant"), (GENERAL, "IntQuant"), ("onnx.brevitas", "Quant")])
def test_names(domain: str, name: str, x: Array) -> None:
    node = helper.make_node(name, ["x", "s", "z", "b"], ["y"], domain=domain, signed=1, narrow=0, rounding_mode="ROUND")
    y, _ = run(file_of([node], {"s": 0.25, "z": 0, "b": 3}, domain, 1), x, "NUMPY")
    np.testing.assert_array_equal(y, np.clip(np.rint(x * 4), -4, 3) / 4)


@pytest.mark.parametrize(("domain", "version", "scale"), [(GENERAL, 1, 0.25), (GENERAL, 2, 1.0), ("onnx.brevitas", 1, 0.25)])
def test_versions_of_trunc(domain: str, version: int, scale: float, x: Array) -> None:
    """The first keeps the scale, the second has one of the result."""
    bits = ["i", "o"] if version == 1 else ["i", "t", "o"]
    node = helper.make_node("Trunc", ["x", "s", "z", *bits], ["y"], domain=domain, rounding_mode="FLOOR")
    y, _ = run(file_of([node], {"s": 0.25, "z": 0, "i": 6, "t": 1, "o": 4}, domain, version), x, "NUMPY")
    np.testing.assert_array_equal(y, np.clip(np.floor(np.rint(x * 4) / 4), -8, 7) * scale)


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN", "OPENCL"])
def test_a_network(device: str, x: Array) -> None:
    """Quantized weights are folded, and quantizers of results are merged into the convolution where the device fuses."""
    rng = np.random.default_rng(4)
    weights = rng.normal(size=(4, 3, 3, 3)).astype(np.float32)
    scale = np.exp2(rng.integers(-4, -1, (4, 1, 1, 1))).astype(np.float32)
    nodes = [
        helper.make_node("Quant", ["w", "ws", "z", "wb"], ["wq"], domain=GENERAL, signed=1, narrow=1),
        helper.make_node("Quant", ["x", "s", "z", "b"], ["xq"], domain=GENERAL, signed=1, narrow=0),
        helper.make_node("Conv", ["xq", "wq"], ["c"]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("Quant", ["r", "s", "z", "b"], ["y"], domain=GENERAL, signed=0, narrow=0),
    ]
    constants = {"w": weights, "ws": scale, "wb": 3, "x": x, "s": 0.25, "z": 0, "b": 4}
    y, report = run(file_of(nodes, {name: a for name, a in constants.items() if name != "x"}, GENERAL, 2), x, device)
    wide = np.clip(np.rint(x.astype(np.float64) * 4), -8, 7) / 4
    own = np.clip(np.rint(weights / scale), -3, 3) * scale
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), axis=(2, 3))
    sums = np.einsum("nchwij,ocij->nohw", windows, own)
    np.testing.assert_array_equal(y, np.clip(np.rint(np.maximum(sums, 0) * 4), 0, 15) / 4)
    assert not any(node.op.startswith(GENERAL) for node in report.nodes)


def test_half_keeps_its_type() -> None:
    half = TensorType(DType.FLOAT16, ())
    assert Quant().infer(half, half, half, *scalars(3)) == half


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Quant(rounding_mode="NEAREST"), "'rounding_mode' is 'NEAREST'; accepted: ROUND, HALF_EVEN, CEIL"),
        (lambda: Quant().infer(*scalars(0, 1, 0, 0)), "input 'bitwidth' is 0.0; accepted: numbers above 0"),
        (
            lambda: Quant().infer(*[*scalars(0, 1, 0), TensorType(DType.FLOAT32, ())]),
            "'bitwidth' is .*; accepted: a constant of one",
        ),
        (lambda: Trunc().infer(*scalars(0, -1, 0, 8, 1, 4)), "'scale' and 'out_scale' are not above 0"),
        (lambda: FloatQuant(saturation=False), "without 'saturation', 'has_inf' and 'has_nan' are 0"),
        (lambda: MultiThreshold().infer(TensorType(DType.FLOAT32, (3,)), TensorType(DType.FLOAT32, (1, 2))), "'x' has 1 axes"),
    ],
)
def test_refusals(make: Any, message: str) -> None:
    with pytest.raises(OperatorError, match=message):
        make()


@pytest.mark.parametrize("number", [1024.0, -2000.0, np.nan, np.inf])
def test_numbers_of_bits_that_no_float_holds(number: float) -> None:
    message = rf"is {number}; accepted: numbers from -1023 to 1023"
    for op, given in ((Quant(), (1.0, 0.5, 0.0)), (Trunc(), (1.0, 0.5, 0.0, 8.0, 1.0)), (Trunc_1(), (1.0, 0.5, 0.0, 8.0))):
        with pytest.raises(OperatorError, match=message):
            op.infer(*scalars(*given, number))
    for place in range(3):
        layout = [4.0, 3.0, 7.0, 448.0]
        layout[place] = number
        with pytest.raises(OperatorError, match=message):
            FloatQuant().infer(*scalars(1.0, 0.5, *layout))


def test_shapes_that_do_not_fit() -> None:
    x = TensorType(DType.FLOAT32, (2, 3))
    with pytest.raises(ShapeError, match="'scale' float32\\[2\\]; accepted: a shape that broadcasts"):
        Quant().infer(x, TensorType(DType.FLOAT32, (2,)), *scalars(0, 4))
    with pytest.raises(ShapeError, match=r"accepted: \[3, steps\] or \[1, steps\]"):
        MultiThreshold().infer(x, TensorType(DType.FLOAT32, (2, 5)))


def test_other_operators_of_the_domain_are_refused_by_name(x: Array) -> None:
    node = helper.make_node("Im2Col", ["x"], ["y"], domain=GENERAL)
    with pytest.raises(UnknownOperator, match=r"qonnx.custom_op.general::Im2Col"):
        run(file_of([node], {}, GENERAL, 1), x, "NUMPY")


@pytest.mark.parametrize("domain", [GENERAL, "onnx.brevitas"])
def test_manifest_is_up_to_date(domain: str) -> None:
    record = PluginManager(config=False).load(f"dovetail-ops-qonnx/ops/{domain}")
    assert record.state == "loaded", record.reason
    assert check_manifest(record) == []


@pytest.mark.parametrize("mode", ["ROUND", "CEIL", "FLOOR", "UP", "DOWN", "HALF_UP", "HALF_DOWN"])
def test_rounding_of_arrays_is_that_of_nodes(mode: str) -> None:
    """By Quant of steps of 1."""
    x = (np.arange(192, dtype=np.float32) % 25 - 12).reshape(1, 3, 8, 8) / 4
    node = helper.make_node("Quant", ["x", "s", "z", "b"], ["y"], domain=GENERAL, signed=1, narrow=0, rounding_mode=mode)
    content = file_of([node], {"s": 1, "z": 0, "b": 8}, GENERAL, 1)
    y, _ = run(content, x, "NUMPY")
    np.testing.assert_array_equal(rounded_array(x, mode), y)


def test_sizes_of_a_recurrent_layer() -> None:
    zeros = [(2, 3, 4), (3, 5), (3, 5), *[(5, 4)] * 4, *[(5, 5)] * 4, *[(5,)] * 4, *[()] * 33]
    types = [TensorType.of(np.zeros(shape, np.float32)) for shape in zeros]
    assert [found.dims for found in QuantLSTMCell().infer(*types)] == [(2, 3, 5), (3, 5), (3, 5)]
    with pytest.raises(ShapeError, match=r"accepted: a sequence \[.., .., size\], states \[batch, hidden\]"):
        QuantLSTMCell(batch_first=True).infer(*types)
    types[3] = types[7]
    with pytest.raises(ShapeError, match=r"input 'quant_weight_ii' is float32\[5, 5\]; accepted: shape \[5, 4\]"):
        QuantLSTMCell().infer(*types)
    with pytest.raises(OperatorError, match="rounding_mode"):
        QuantLSTMCell(cell_acc_rounding_mode="NEAR")
