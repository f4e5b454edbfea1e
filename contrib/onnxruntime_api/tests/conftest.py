"""Models for both runtimes, and the two modules side by side."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import dovetail_onnxruntime
from dovetail_onnxruntime import noted

Make = Callable[..., bytes]


@pytest.fixture(params=["onnxruntime", "dovetail"])
def ort(request: pytest.FixtureRequest) -> Any:
    """The module under test and onnxruntime itself: what is asserted holds for both."""
    if request.param == "dovetail":
        return dovetail_onnxruntime
    import onnxruntime as module

    module.set_default_logger_severity(4)
    return module


@pytest.fixture(autouse=True)
def nothing_noted() -> Iterator[None]:
    """Warnings that come once a process come once a test."""
    noted._noted.clear()
    yield
    noted._noted.clear()


@pytest.fixture
def make() -> Make:
    """`make(nodes, inputs, outputs)` gives the bytes of a model; inputs and outputs are name -> (type, dims)."""

    def build(nodes: list[Any], inputs: dict[str, Any], outputs: dict[str, Any], **fields: Any) -> bytes:
        infos = [[helper.make_tensor_value_info(name, *typed) for name, typed in part.items()] for part in (inputs, outputs)]
        graph = helper.make_graph(nodes, "g", *infos)
        domains = {node.domain for node in nodes} - {""}
        opsets = [helper.make_opsetid("", 17), *(helper.make_opsetid(domain, 1) for domain in domains)]
        model = helper.make_model(graph, opset_imports=opsets, ir_version=9, **fields)
        return bytes(model.SerializeToString())

    return build


@pytest.fixture
def add(make: Make) -> bytes:
    """s = x + z with x [?, 3] and z [None, 3]; t = y with y [N, -1]; u = relu(x)."""
    nodes = [
        helper.make_node("Add", ["x", "z"], ["s"]),
        helper.make_node("Identity", ["y"], ["t"]),
        helper.make_node("Relu", ["x"], ["u"]),
    ]
    floats = TensorProto.FLOAT
    inputs = {"x": (floats, ["?", 3]), "y": (floats, ["N", -1]), "z": (floats, [None, 3])}
    return make(nodes, inputs, {"s": (floats, None), "t": (floats, ["A", "B"]), "u": (floats, ["Q", 3])}, producer_name="tests")


@pytest.fixture
def feed() -> dict[str, Any]:
    """Inputs of `add`."""
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(shape, np.float32) for name, shape in (("x", (2, 3)), ("y", (5, 7)), ("z", (1, 3)))}
