"""Mistakes in the code of a device are errors of the compilation, which name the device and the node."""

from typing import Any

import pytest

import dovetail
from dovetail.device import DeviceInfo
from dovetail.errors import CompileError
from dovetail.graph import GraphBuilder
from dovetail.testing import ReferenceDevice, register_device
from dovetail_ops_onnx.relu import Relu


def raises(self: Any, *given: Any) -> Any:
    raise RuntimeError("no driver")


@pytest.mark.parametrize(
    ("methods", "message"),
    [
        ({"supports": raises}, r"device TOY.0: supports\(\) raised RuntimeError: no driver for node 'act' \(Relu\)"),
        ({"supports": lambda self, node: None}, r"TOY.0 answers None for node 'act' \(Relu\); accepted: Accepted or Refusal"),
        ({"compile": raises}, "device TOY.0: compiling 1 nodes raised RuntimeError: no driver\n  report it to the authors"),
        ({"compile": lambda *given: None}, r"device TOY.0: compile\(\) gave None; accepted: a dovetail.device.Executable"),
        ({"configurations": lambda self, node: ()}, r"node 'act' \(Relu\): the device has no configuration for it"),
    ],
)
def test_a_mistake_while_compiling(methods: dict[str, Any], message: str) -> None:
    core = dovetail.Core(config=False)
    register_device(core, DeviceInfo("TOY.0", "TOY", "CPU", "a toy"), type("Toy", (ReferenceDevice,), methods))
    g = GraphBuilder()
    model = g.model([g.node(Relu(), g.input("x", "float32", [2]), name="act")])
    with pytest.raises(CompileError, match=message):
        core.compile_model(model, "TOY")
