"""Models of old operator sets, whose attributes are inputs now: the same results as ONNX Runtime's."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from numpy.typing import NDArray
from onnx import helper

from dovetail.errors import OperatorError
from dovetail.evaluate.inference import infer_node
from dovetail.evaluate.reference import run_reference
from dovetail.graph import Graph, Node, TensorType
from dovetail.op import Operator, UnboundOperator
from dovetail.passes.bind import bind
from dovetail_ops_onnx import find

_X = np.random.default_rng(11).standard_normal((2, 1, 6, 1)).astype(np.float32)


def _expected(op_type: str, version: int, attributes: dict[str, Any], outputs: int) -> list[NDArray[Any]]:
    names = [f"y{i}" for i in range(outputs)]
    graph = helper.make_graph(
        [helper.make_node(op_type, ["x"], names, **attributes)],
        "graph",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, _X.shape)],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=7)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    results: list[NDArray[Any]] = session.run(None, {"x": _X})
    return results


def _find(domain: str, op_type: str, version: int) -> type[Operator]:
    cls = find(op_type, version)
    assert cls is not None
    return cls


def _got(op_type: str, version: int, attributes: dict[str, Any], outputs: int) -> list[NDArray[Any]]:
    names = tuple(f"y{i}" for i in range(outputs))
    node = Node("node", UnboundOperator("", op_type, version, attributes), ("x",), names)
    graph = bind(Graph((node,), ("x",), names), _find)
    values = [_X if name == "x" else graph.constants[name] if name else None for name in graph.nodes[0].inputs]
    types = [None if v is None else TensorType.of(v, known=i > 0) for i, v in enumerate(values)]
    return run_reference(graph.nodes[0], values, infer_node(graph.nodes[0], types))


@pytest.mark.parametrize("version", [7, 9, 10])
@pytest.mark.parametrize(
    ("op_type", "attributes", "outputs"),
    [
        ("Clip", {"min": -0.5, "max": 0.25}, 1),
        ("Clip", {"max": 0.0}, 1),
        ("Clip", {}, 1),
        ("Dropout", {"ratio": 0.75}, 1),
        ("Flatten", {"axis": 2}, 1),
        ("LeakyRelu", {"alpha": 0.5}, 1),
        ("Pad", {"pads": [0, 1, 2, 0, 0, 0, 3, 1], "value": 1.5}, 1),
        ("Pad", {"pads": [0, 0, 2, 0, 0, 0, 3, 0], "mode": "reflect"}, 1),
        ("Pad", {"pads": [0, 0, -1, 0, 0, 0, -2, 0], "mode": "edge"}, 1),
        ("Split", {"axis": 2}, 3),
        ("Split", {"axis": 2, "split": [1, 5]}, 2),
        ("Split", {}, 2),
        ("Squeeze", {"axes": [1, 3]}, 1),
        ("Squeeze", {}, 1),
        ("Transpose", {"perm": [3, 1, 0, 2]}, 1),
        ("Unsqueeze", {"axes": [0, 3]}, 1),
    ],
)
def test_attributes_that_became_inputs(op_type: str, version: int, attributes: dict[str, Any], outputs: int) -> None:
    expected = _expected(op_type, version, attributes, outputs)
    got = _got(op_type, version, attributes, outputs)
    for one, other in zip(got, expected, strict=True):
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize(
    "attributes",
    [
        {"starts": [1, -3], "ends": [9, -1], "axes": [0, 2]},
        {"starts": [0, 0, 2], "ends": [1, 1, 4]},
        {"starts": [0], "ends": [2**31 - 1], "axes": [3]},
    ],
)
@pytest.mark.parametrize("version", [7, 9])
def test_slice_with_attributes(version: int, attributes: dict[str, Any]) -> None:
    (expected,) = _expected("Slice", version, attributes, 1)
    (got,) = _got("Slice", version, attributes, 1)
    np.testing.assert_array_equal(got, expected)
    assert got.shape == expected.shape


def test_an_empty_list_of_axes_stays_a_list_of_integers() -> None:
    (got,) = _got("Unsqueeze", 11, {"axes": []}, 1)
    np.testing.assert_array_equal(got, _X)


def test_more_parts_than_outputs_are_refused() -> None:
    with pytest.raises(OperatorError, match="3 output types, the node has 2 outputs"):
        _got("Split", 18, {"axis": 2, "num_outputs": 3}, 2)


@pytest.mark.parametrize("version", [9, 13])
def test_batch_normalization_with_five_outputs_trains(version: int, rng: np.random.Generator) -> None:
    names = ("y", "mean", "var", "saved_mean", "saved_var")
    inputs = {"x": rng.standard_normal((4, 3, 5)), **{name: rng.uniform(0.5, 2, 3) for name in "sbmv"}}
    values = {name: array.astype(np.float32) for name, array in inputs.items()}
    graph = helper.make_graph(
        [helper.make_node("BatchNormalization", list(values), names, momentum=0.75)],
        "graph",
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, array.shape) for name, array in values.items()],
        [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in names],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", version)], ir_version=7)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    node = Node("node", UnboundOperator("", "BatchNormalization", version, {"momentum": 0.75}), tuple(values), names)
    (bound,) = bind(Graph((node,), tuple(values), names), _find).nodes
    got = run_reference(bound, [*values.values()], infer_node(bound, [TensorType.of(v) for v in values.values()]))
    for one, other in zip(got, session.run(None, values), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("outputs", [2, 4])
def test_batch_normalization_with_another_number_of_outputs(outputs: int) -> None:
    names = tuple(f"y{i}" for i in range(outputs))
    node = Node("node", UnboundOperator("", "BatchNormalization", 9, {}), tuple("xsbmv"), names)
    with pytest.raises(OperatorError, match=f"has {outputs} outputs; accepted: 1, or in training 5"):
        bind(Graph((node,), tuple("xsbmv"), names), _find)
