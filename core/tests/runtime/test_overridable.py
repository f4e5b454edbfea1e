"""Constants that a run may replace by an input of their name: defaults when absent, on all kinds of runs and shapes."""

import dataclasses
import pickle
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InputError, UsageError
from dovetail.graph import DType, Model, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reshape import Reshape

X = np.array([1, 2, 3], np.float32)
W = np.array([10, 20, 30], np.float32)
V = np.array([4, 5, 6], np.float32)


def model(*shape: int | str) -> Model:
    """x * (w + b), where w and b are constants that may be replaced; their sum is folded when both are constant."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", shape or [3])
    weight = g.node(Add(), g.constant(W, name="w"), g.constant(np.float32(1), name="b"))
    made = g.model([g.node(Mul(), x, weight, outputs=["y"])])
    return dataclasses.replace(made, overridable={"w": TensorType(DType.FLOAT32, (None,)), "b": TensorType(DType.FLOAT32, ())})


@pytest.fixture
def compiled() -> dovetail.CompiledModel:
    return dovetail.Core().compile_model(model(), "NUMPY")


def test_absent_it_is_its_default(compiled: Any) -> None:
    np.testing.assert_array_equal(compiled(X)[0], [11, 42, 93])
    assert list(compiled.inputs) == ["x"]
    assert [node.op for node in compiled.report().nodes] == ["Mul"]  # w + b is folded


def test_given_it_replaces_the_default(compiled: Any) -> None:
    np.testing.assert_array_equal(compiled({"x": X, "w": V})[0], [5, 12, 21])
    np.testing.assert_array_equal(compiled({"b": np.float32(2), "w": V, "x": X})[0], [6, 14, 24])
    np.testing.assert_array_equal(compiled({"x": X, "b": np.float32(2)})[0], [12, 44, 96])
    np.testing.assert_array_equal(compiled({"x": X})[0], [11, 42, 93])


def test_in_the_background_and_in_a_queue(compiled: Any) -> None:
    request = compiled.create_infer_request()
    request.start_async({"x": X, "w": V})
    request.wait()
    np.testing.assert_array_equal(request.results[0], [5, 12, 21])
    found: dict[int, Any] = {}
    queue = dovetail.AsyncInferQueue(compiled, jobs=2)
    queue.set_callback(lambda request, index: found.update({index: request.results[0]}))
    for index in range(6):
        queue.start_async({"x": X, "w": V} if index % 2 else {"x": X}, index)
    queue.wait_all()
    for index in range(6):
        np.testing.assert_array_equal(found[index], [5, 12, 21] if index % 2 else [11, 42, 93])


def test_open_dimensions_and_an_unpickled_model() -> None:
    compiled = pickle.loads(pickle.dumps(dovetail.Core().compile_model(model("N", 1), "NUMPY")))
    x = np.array([[1], [2]], np.float32)
    np.testing.assert_array_equal(compiled({"x": x, "w": V})[0], [[5, 6, 7], [10, 12, 14]])
    np.testing.assert_array_equal(compiled({"x": x, "w": V[:2]})[0], [[5, 6], [10, 12]])
    np.testing.assert_array_equal(compiled({"x": x[:1]})[0], [[11, 21, 31]])


def test_a_shape_that_is_replaced_is_known_only_at_the_run() -> None:
    g = dovetail.GraphBuilder()
    shape = g.constant(np.array([6], np.int64), name="shape")
    made = g.model([g.node(Reshape(), g.input("x", "float32", (2, 3)), shape, outputs=["y"])])
    made = dataclasses.replace(made, overridable={"shape": TensorType(DType.INT64, (None,))})
    compiled = dovetail.Core().compile_model(made, "NUMPY")
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    assert compiled(x)[0].shape == (6,)
    assert compiled({"x": x, "shape": [3, 2]})[0].shape == (3, 2)
    assert compiled({"x": x, "shape": np.array([1, 6, 1])})[0].shape == (1, 6, 1)


def test_wrong_values_and_names_are_refused(compiled: Any) -> None:
    with pytest.raises(InputError, match=r"input 'w' is float64\[3\]; accepted: float32"):
        compiled({"x": X, "w": V.astype(np.float64)})
    with pytest.raises(InputError, match=r"the input 'x' of .* is missing; it takes x: .*, w: "):
        compiled({"w": V})
    with pytest.raises(InputError, match=r"has no input 'W'\s+Did you mean 'w'\?"):
        compiled({"x": X, "W": V})
    with pytest.raises(UsageError, match="no overridable constant 'x'"):
        compiled.model.overriding(["x"])
    np.testing.assert_array_equal(compiled(X)[0], [11, 42, 93])


def test_a_closed_model_refuses_them_too(compiled: Any) -> None:
    compiled({"x": X, "w": V})
    request = compiled.create_infer_request()
    compiled.close()
    with pytest.raises(UsageError, match="closed"):
        request.infer({"x": X, "w": V})
