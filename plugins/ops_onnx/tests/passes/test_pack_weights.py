"""Products and tables whose weights are integers with scales stay packed, with the results of onnxruntime and of float64."""

from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail

Array = np.ndarray[Any, Any]

KINDS = {"u8": (np.uint8, 0, 255), "i8": (np.int8, -128, 127), "u4": (ml_dtypes.uint4, 0, 15), "i4": (ml_dtypes.int4, -8, 7)}
ROWS, COLUMNS = 331, 256


def _constant(name: str, array: Array) -> onnx.TensorProto:
    kinds = {"int4": TensorProto.INT4, "uint4": TensorProto.UINT4}
    kind = kinds.get(array.dtype.name)
    if kind is None:
        return numpy_helper.from_array(array, name)
    return helper.make_tensor(name, kind, array.shape, array.astype(np.int8).reshape(-1).tolist())


class _Weights:
    """`Cast, Sub, Mul`, or DequantizeLinear in blocks of `size`, of [ROWS, COLUMNS] with scales along axis `along`."""

    def __init__(self, rng: np.random.Generator, kind: str, size: int, along: int, zeros: bool, blockwise: bool) -> None:
        dtype, low, high = KINDS[kind]
        shape = (ROWS, COLUMNS) if along else (COLUMNS, ROWS)
        codes = rng.integers(low, high + 1, shape)
        grouped = (ROWS, -1, size) if along else (-1, size, ROWS)
        dims = (ROWS, COLUMNS // size, 1) if along else (COLUMNS // size, 1, ROWS)
        scales = rng.uniform(0.01, 0.1, dims).astype(np.float32)
        points = rng.integers(low, high + 1, dims) if zeros else np.zeros(dims, np.int64)
        self.floats = ((codes.reshape(grouped) - points) * scales.astype(np.float64)).reshape(shape)
        arrays = {"codes": codes.reshape(shape if blockwise else grouped), "scales": scales, "points": points}
        if blockwise:
            arrays |= {name: np.squeeze(arrays[name], along + 1) for name in ("scales", "points")}
        typed = {name: array if name == "scales" else array.astype(dtype) for name, array in arrays.items()}
        self.constants = [_constant(name, array) for name, array in typed.items() if zeros or name != "points"]
        if blockwise:
            names = [one.name for one in self.constants]
            self.nodes = [helper.make_node("DequantizeLinear", names, ["w"], axis=along, block_size=size)]
            return
        self.constants.append(_constant("shape", np.array(shape)))
        self.nodes = [helper.make_node("Cast", ["codes"], ["wide"], to=1)]
        if zeros:
            self.nodes += [
                helper.make_node("Cast", ["points"], ["zero"], to=1),
                helper.make_node("Sub", ["wide", "zero"], ["less"]),
            ]
        self.nodes.append(helper.make_node("Mul", ["less" if zeros else "wide", "scales"], ["scaled"]))
        self.nodes.append(helper.make_node("Reshape", ["scaled", "shape"], ["w"]))

    def model(self, *nodes: onnx.NodeProto, kind: int, dims: tuple[Any, ...]) -> bytes:
        inputs = [helper.make_tensor_value_info("x", kind, dims)]
        outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
        graph = helper.make_graph([*self.nodes, *nodes], "m", inputs, outputs, self.constants)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        return bytes(made.SerializeToString())


def _run(model: bytes, x: Array, device: str) -> tuple[Array, list[str]]:
    core = dovetail.Core()
    with core.compile_model(core.read_model(model, format="onnx"), device) as compiled:
        found = compiled({"x": x})[0]
        return found, [node.op for node in compiled.report().nodes]


DEVICES = sorted({info.type for info in dovetail.Core().devices})


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("rows", [1, 40])
@pytest.mark.parametrize(
    ("kind", "size", "along", "zeros", "blockwise"),
    [
        ("u8", 256, 1, True, False),
        ("u8", 256, 0, True, False),
        ("i8", 256, 1, False, False),
        ("i8", 32, 0, True, True),
        ("u8", 32, 1, False, False),
        ("u4", 128, 1, True, False),
        ("u4", 64, 0, True, True),
        ("i4", 16, 1, False, False),
        ("i4", 256, 0, True, False),
        ("i4", 32, 1, True, True),
    ],
)
def test_products(kind: str, size: int, along: int, zeros: bool, blockwise: bool, rows: int, device: str) -> None:
    rng = np.random.default_rng(3)
    weights = _Weights(rng, kind, size, along, zeros, blockwise)
    turned = [helper.make_node("Transpose", ["w"], ["v"], perm=[1, 0])] if along else []
    product = helper.make_node("MatMul", ["x", "v" if along else "w"], ["y"])
    x = rng.standard_normal((1, rows, COLUMNS)).astype(np.float32)
    found, ops = _run(weights.model(*turned, product, kind=TensorProto.FLOAT, dims=(1, "rows", COLUMNS)), x, device)
    assert any(name.startswith("dovetail::MatMul") for name in ops), ops
    wanted = x.astype(np.float64) @ (weights.floats.T if along else weights.floats)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=3e-6 * np.abs(wanted).max())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    ("kind", "size", "zeros", "blockwise"),
    [
        ("u8", 256, True, False),
        ("i8", 32, False, True),
        ("u4", 16, True, True),
        ("i4", 256, False, False),
        ("i4", 32, True, False),
    ],
)
def test_rows_of_a_table(kind: str, size: int, zeros: bool, blockwise: bool, device: str) -> None:
    rng = np.random.default_rng(5)
    weights = _Weights(rng, kind, size, 1, zeros, blockwise)
    model = weights.model(helper.make_node("Gather", ["w", "x"], ["y"]), kind=TensorProto.INT64, dims=("n", "m"))
    x = rng.integers(-ROWS, ROWS, (2, 7))
    found, ops = _run(model, x, device)
    assert ops.count("Gather") == 2 + zeros
    np.testing.assert_allclose(found, weights.floats[x], rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["u8", "i4"])
def test_results_are_those_of_onnxruntime(kind: str) -> None:
    rng = np.random.default_rng(7)
    weights = _Weights(rng, kind, 64, 0, True, True)
    model = weights.model(helper.make_node("MatMul", ["x", "w"], ["y"]), kind=TensorProto.FLOAT, dims=("rows", COLUMNS))
    x = rng.standard_normal((5, COLUMNS)).astype(np.float32)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL  # else it rounds x to int8
    wanted = onnxruntime.InferenceSession(model, options).run(None, {"x": x})[0]
    np.testing.assert_allclose(_run(model, x, "NUMPY")[0], wanted, rtol=1e-4, atol=1e-4)


def test_scales_that_differ_along_the_sum_stay_floats() -> None:
    """[ROWS, COLUMNS] with one scale a row, read without a transpose: the rows are summed."""
    rng = np.random.default_rng(9)
    weights = _Weights(rng, "u8", 256, 1, True, False)
    model = weights.model(helper.make_node("MatMul", ["x", "w"], ["y"]), kind=TensorProto.FLOAT, dims=(4, ROWS))
    x = rng.standard_normal((4, ROWS)).astype(np.float32)
    found, ops = _run(model, x, "NUMPY")
    assert ops == ["MatMul"]
    wanted = x.astype(np.float64) @ weights.floats
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=3e-6 * np.abs(wanted).max())


def test_what_is_read_as_floats_too_is_the_same_matrix() -> None:
    rng = np.random.default_rng(11)
    weights = _Weights(rng, "i8", 256, 0, False, False)
    product = helper.make_node("MatMul", ["x", "w"], ["p"])
    total = helper.make_node("ReduceSum", ["w"], ["t"], keepdims=0)
    model = weights.model(product, total, helper.make_node("Add", ["p", "t"], ["y"]), kind=TensorProto.FLOAT, dims=(2, COLUMNS))
    x = rng.standard_normal((2, COLUMNS)).astype(np.float32)
    wanted = x.astype(np.float64) @ weights.floats + weights.floats.sum()
    np.testing.assert_allclose(_run(model, x, "NUMPY")[0], wanted, rtol=1e-4)
