"""Initializers that are also inputs: defaults that a run may override, as onnxruntime does it."""

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import dovetail

W = np.random.default_rng(3).standard_normal((4, 3)).astype(np.float32)
B = np.array([1, -1, 2], np.float32)


def _info(name: str, *shape: Any) -> Any:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)


@pytest.fixture
def model(build: Any) -> Any:
    """`model(ir)`: relu(x @ w + b) in an IR version, with w and b as inputs that have defaults."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["s"]),
        helper.make_node("Relu", ["s"], ["y"]),
    ]
    initializers = [numpy_helper.from_array(W, "w"), numpy_helper.from_array(B, "b")]
    inputs = [_info("x", "N", 4), _info("w", 4, 3), _info("b", 3)]
    return lambda ir: build(nodes, inputs, [_info("y", "N", 3)], initializer=initializers, opsets={"": 8}, ir_version=ir)


@pytest.mark.parametrize("ir", [3, 4, 8])
def test_they_are_constants_and_overridable(read: Any, model: Any, ir: int) -> None:
    found = read(model(ir))
    assert list(found.inputs) == ["x"]
    assert {name: str(tensor) for name, tensor in found.overridable.items()} == {"w": "float32[4, 3]", "b": "float32[3]"}
    assert set(found.graph.constants) == {"w", "b"}


def test_initializers_that_are_not_inputs_are_not(read: Any, build: Any) -> None:
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    assert not read(build(nodes, initializer=[numpy_helper.from_array(B, "w")])).overridable


def test_values_are_those_of_onnxruntime(read: Any, model: Any) -> None:
    proto = model(8)
    session = onnxruntime.InferenceSession(proto.SerializeToString())
    assert [one.name for one in session.get_overridable_initializers()] == ["w", "b"]
    compiled = dovetail.Core().compile_model(read(proto), "NUMPY")
    rng = np.random.default_rng(5)
    for size, given in ((2, ""), (2, "w"), (0, "w"), (5, "bw"), (1, "b"), (2, "")):
        feeds = {"x": rng.standard_normal((size, 4)).astype(np.float32)}
        feeds |= {name: rng.standard_normal({"w": (4, 3), "b": (3,)}[name]).astype(np.float32) for name in given}
        np.testing.assert_allclose(compiled(feeds)[0], session.run(None, feeds)[0], rtol=1e-5, atol=1e-5)


def test_an_input_without_a_type_has_that_of_its_default(read: Any, model: Any) -> None:
    proto = model(8)
    proto.graph.input[2].ClearField("type")
    assert str(read(onnx.ModelProto.FromString(proto.SerializeToString())).overridable["b"]) == "float32[3]"


@pytest.mark.parametrize("taken", [(), ("b",)])
def test_a_written_model_still_has_them(read: Any, model: Any, taken: tuple[str, ...], tmp_path: Any) -> None:
    dovetail.Core().write_model(read(model(8)).overriding(taken), tmp_path / "written.onnx")
    found = dovetail.Core().read_model(tmp_path / "written.onnx")
    assert list(found.inputs) == ["x", *taken]
    assert {name: str(tensor) for name, tensor in found.overridable.items()} == {
        name: text for name, text in {"w": "float32[4, 3]", "b": "float32[3]"}.items() if name not in taken
    }
    feeds = {"x": np.ones((2, 4), np.float32), "w": 2 * W, "b": B}
    np.testing.assert_allclose(dovetail.Core().compile_model(found, "NUMPY")(feeds)[0], np.maximum(feeds["x"] @ (2 * W) + B, 0))
    if not taken:
        session = onnxruntime.InferenceSession(tmp_path / "written.onnx")
        assert [one.name for one in session.get_overridable_initializers()] == ["w", "b"]
