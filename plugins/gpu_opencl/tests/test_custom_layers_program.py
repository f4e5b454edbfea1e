"""`dovetail run -c FILE --dump-kernel NODE --to FOLDER`: a node as a program that runs alone and checks itself."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper, save

from dovetail.cli import program
from dovetail.device import DeviceInfo

XML = """<CustomLayer name="Shrink" type="SimpleGPU" version="1">
  <Kernel entry="shrink_all">
    <Source filename="shrink.cl"/>
    <Define name="factor" type="float" param="factor" default="0.5"/>
  </Kernel>
  <Buffers>
    <Tensor arg-index="0" type="input" port-index="0" format="BYXF"/>
    <Tensor arg-index="1" type="output" port-index="0" format="BYXF"/>
  </Buffers>
</CustomLayer>"""
CL = """__kernel void shrink_all(__global const INPUT0_TYPE* x, __global OUTPUT0_TYPE* y) {
  const int i = get_global_id(0);
  y[i] = x[i] * factor;
}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A model of Conv, Add, Relu and a custom operator, with a custom layer beside it."""
    rng = np.random.default_rng(11)
    weights = [rng.standard_normal(shape).astype(np.float32) for shape in ((4, 3, 3, 3), (4,))]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Add", ["c", "c2"], ["a"], name="add"),
        helper.make_node("Relu", ["a"], ["r"], name="relu"),
        helper.make_node("Shrink", ["r"], ["y"], name="shrink", domain="com.acme", factor=0.25),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 5, 6]),
        helper.make_tensor_value_info("c2", TensorProto.FLOAT, [2, 4, 5, 6]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 4, 5, 6])]
    initializers = [numpy_helper.from_array(a, n) for a, n in zip(weights, "wb", strict=True)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, initializers)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("com.acme", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=9), tmp_path / "m.onnx")
    (tmp_path / "shrink.xml").write_text(XML)
    (tmp_path / "shrink.cl").write_text(CL)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(info: DeviceInfo, *words: str, code: int = 0) -> Any:
    command = ["run", "m.onnx", "-d", info.name, "-i", "random", "-c", "shrink.xml", "--json", *words]
    result = CliRunner().invoke(program, command, prog_name="dovetail", catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output if code else json.loads(result.stdout)


def alone(folder: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", str(folder / "reproduce.py")]
    return subprocess.run(command, capture_output=True, text=True, timeout=600, check=False)


@pytest.mark.parametrize(
    ("node", "origin"),
    [("conv", "the operator's reference"), ("shrink", "what the kernels gave"), ("relu", "the operator's reference")],
)
def test_a_node_as_a_program(info: DeviceInfo, folder: Path, node: str, origin: str) -> None:
    described = run(info, "--dump-kernel", node, "--to", "alone")
    assert described["program"] == str(Path("alone", "reproduce.py"))
    done = alone(folder / "alone")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"expected is {origin}" in done.stdout
    assert done.stdout.strip().endswith("same")
    # It must notice another result, and be free of this package.
    assert "dovetail" not in (folder / "alone" / "reproduce.py").read_text()
    expected = folder / "alone" / "expected0.npy"
    np.save(expected, np.load(expected) + 1)
    assert alone(folder / "alone").returncode == 1


def test_the_kernel_is_the_one_that_ran(info: DeviceInfo, folder: Path) -> None:
    run(info, "--dump-kernel", "shrink", "--to", "alone")
    kernel = folder / "alone" / "kernel0.cl"
    assert kernel.read_text().startswith("// Custom Layer Built-ins\n")
    assert "#define factor 0.25\n" in kernel.read_text()
    kernel.write_text(kernel.read_text().replace("factor 0.25", "factor 0.5"))
    assert "DIFFERENT" in alone(folder / "alone").stdout


def test_explain_says_why_a_layer_was_preferred(info: DeviceInfo, folder: Path) -> None:
    (folder / "relu.xml").write_text(XML.replace("Shrink", "Relu"))
    command = ["explain", "m.onnx", "-d", info.name, "-c", "shrink.xml", "-c", "relu.xml"]
    described = json.loads(CliRunner().invoke(program, [*command, "--json"], prog_name="dovetail").stdout)
    nodes = {node["node"]: node for node in described["nodes"]}
    assert (nodes["relu"]["kernel"], nodes["relu"]["rule"]) == ("custom layer Relu (relu.xml)", 1)
    assert nodes["shrink"]["kernel"] == "custom layer Shrink (shrink.xml)"
    shown = CliRunner().invoke(program, command, prog_name="dovetail", env={"COLUMNS": "400"}).stdout
    (line,) = [line for line in shown.splitlines() if "1: what the user prefers goes first" in line]
    assert line.split()[0] == "relu"
    assert "custom layers" in line


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--dump-kernel", "conv"), 2, "Missing option '--to'"),
        (("--dump-kernel", "conf", "--to", "alone"), 1, "the plan has no node 'conf'\n  Did you mean 'conv'?"),
        (("--dump-kernel", "conv", "--to", "."), 1, "the folder . is not empty"),
    ],
)
def test_what_cannot_be_meant(info: DeviceInfo, folder: Path, words: tuple[str, ...], code: int, said: str) -> None:
    assert said in run(info, *words, code=code)


def test_layers_of_a_device_that_has_none(folder: Path) -> None:
    command = ["run", "m.onnx", "-d", "NUMPY", "-i", "random", "-c", "shrink.xml"]
    result = CliRunner().invoke(program, command, prog_name="dovetail")
    assert result.exit_code == 1
    assert "NUMPY has no option 'CONFIG_FILE'" in result.output
