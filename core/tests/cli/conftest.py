"""Fixtures for the command line: invoking it in a fresh process, and small models as files."""

import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save


@pytest.fixture
def dovetail(tmp_path: Path) -> Callable[..., "subprocess.CompletedProcess[str]"]:
    """Run the installed program in a fresh process and an empty working directory."""

    def run(*arguments: object, code: int = 0, **environment: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-c", "from dovetail.cli import main; main()", *map(str, arguments)]
        env = {**os.environ, **environment}
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600, check=False)
        assert done.returncode == code, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done

    return run


SaveModel = Callable[..., Path]


def save_model(path: Path, nodes: list[Any], inputs: Mapping[str, Any], outputs: Mapping[str, Any], **constants: Any) -> Path:
    """An ONNX file with float inputs and outputs of the given shapes."""
    graph = helper.make_graph(
        nodes,
        "test",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in outputs.items()],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.acme", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    return path


@pytest.fixture(name="save_model")
def save_model_fixture() -> SaveModel:
    """`save_model(path, nodes, inputs, outputs, **constants)`."""
    return save_model


@pytest.fixture
def linear(tmp_path: Path) -> Path:
    """y = relu(x w + b), x [N, 3], w [3, 2]: 8 parameters, and for N = 1 12 FLOPs in MatMul and 2 each in Add and Relu."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"], "product"),
        helper.make_node("Add", ["p", "b"], ["s"], "sum"),
        helper.make_node("Relu", ["s"], ["y"], "relu"),
    ]
    weights = {"w": np.array([[1, -1], [2, 0], [0, 3]], np.float32), "b": np.array([0.5, -4], np.float32)}
    return save_model(tmp_path / "linear.onnx", nodes, {"x": ["N", 3]}, {"y": ["N", 2]}, **weights)


@pytest.fixture
def two_inputs(tmp_path: Path) -> Path:
    """sum = left + right, both [2, 2]."""
    node = helper.make_node("Add", ["left", "right"], ["sum"], "sum")
    return save_model(tmp_path / "two.onnx", [node], {"left": [2, 2], "right": [2, 2]}, {"sum": [2, 2]})


@pytest.fixture
def device() -> str:
    """A device that is installed."""
    from dovetail.runtime import REFERENCE_DEVICE

    return REFERENCE_DEVICE
