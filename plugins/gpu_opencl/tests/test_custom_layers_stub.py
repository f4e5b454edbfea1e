"""`dovetail bench --stub TYPE` and the option `STUB`: kernels that do nothing, to see what faster ones would give."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from onnx import TensorProto, helper, numpy_helper, save

from dovetail.cli import program
from dovetail.device import DeviceInfo
from dovetail.errors import UsageError
from dovetail_gpu_opencl.device import OpenCLDevice


def test_a_stub_launches_nothing_and_leaves_the_plan_as_it_is(device: OpenCLDevice, bench: Any) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    graph, feeds = bench.single(bench.op("ReduceSum", 18), [x])
    plain, stubbed = device.compile(graph, {}), device.compile(graph, {"STUB": ["ReduceSum"]})
    assert [r.kernel for r in stubbed.reports] == ["stub"]
    assert (len(plain.commands) > 0, len(stubbed.commands)) == (True, 0)
    assert plain.memory.offsets == stubbed.memory.offsets
    request = stubbed.create_request()
    assert request.run(feeds)[0].shape == (1, 1)
    request.close()
    other = device.compile(graph, {"STUB": ("Relu",)})
    assert [r.kernel for r in other.reports] == [r.kernel for r in plain.reports]


@pytest.mark.parametrize("value", ["Conv", 3, [None]])
def test_a_value_that_is_no_list_of_types(device: OpenCLDevice, bench: Any, value: Any) -> None:
    graph, _ = bench.single(bench.op("Relu"), [np.zeros(3, np.float32)])
    with pytest.raises(UsageError, match=r"property STUB of [A-Z]+ is .*; accepted: a list of operator types"):
        device.compile(graph, {"STUB": value})


@pytest.fixture
def model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two products with a Relu between them, and a Softmax."""
    monkeypatch.chdir(tmp_path)
    weights = np.random.default_rng(12).standard_normal((8, 8)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="relu"),
        helper.make_node("MatMul", ["b", "w"], ["c"], name="two"),
        helper.make_node("Softmax", ["c"], ["y"], name="softmax"),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 8])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 8])]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weights, "w")])
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), "m.onnx")
    return "m.onnx"


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(program, ["bench", *words], prog_name="dovetail", catch_exceptions=False)
    assert result.exit_code == code, result.output
    return result.output if code else result.stdout


def test_bench_measures_each_type_alone_and_all_together(info: DeviceInfo, model: str) -> None:
    shown = json.loads(run(model, "-d", info.name, "-n", "3", "--stub", "MatMul", "--stub", "Softmax", "--json"))
    assert [(one["types"], one["nodes"]) for one in shown["stubs"]] == [
        (["MatMul"], 2),
        (["Softmax"], 1),
        (["MatMul", "Softmax"], 3),
    ]
    for one in shown["stubs"]:
        assert one["with"]["runs"] == one["without"]["runs"] == 3
        assert one["speedup"] == pytest.approx(one["with"]["p50"] / one["without"]["p50"])
    assert json.loads(run(model, "-d", info.name, "-n", "1", "--json"))["stubs"] == []


def test_bench_says_what_the_figures_mean(info: DeviceInfo, model: str) -> None:
    shown = run(model, "-d", info.name, "-n", "2", "--stub", "MatMul")
    assert "If these kernels took no time" in shown
    assert "no branch, no loop, no index" in " ".join(shown.split())


def test_a_type_that_no_node_has(info: DeviceInfo, model: str) -> None:
    shown = run(model, "-d", info.name, "-n", "1", "--stub", "MatMull", code=2)
    assert "No node of type 'MatMull' runs. Did you mean 'MatMul'?" in shown


def test_a_type_whose_nodes_run_elsewhere(info: DeviceInfo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is computed by its reference runs on another device, which was asked to leave nothing out."""
    monkeypatch.chdir(tmp_path)
    Path("ops.py").write_text(
        "from dovetail.op import Operator\n\n\nclass Cube(Operator):\n"
        "    domain = 'my'\n\n    def reference(self, X):\n        return X * X * X\n"
    )
    nodes = [
        helper.make_node("Cube", ["x"], ["a"], name="c", domain="my"),
        helper.make_node("Relu", ["a"], ["y"], name="r"),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("my", 1)]
    save(helper.make_model(graph, opset_imports=opsets, ir_version=9), "n.onnx")
    shown = run("n.onnx", "-d", info.name, "-l", "ops.py", "-n", "1", "--stub", "Cube", code=2)
    assert "Node 'c' (my::Cube) runs on NUMPY: --stub leaves out kernels of the device of -d." in " ".join(shown.split())
