"""explain: what it tells of a plan, and the stages in which nodes can run."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from onnx import helper

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]
SaveModel = Callable[..., Path]


@pytest.fixture
def residual(tmp_path: Path, save_model: SaveModel) -> Path:
    """y = softplus(relu(conv(a) + a)), a = conv(x); the nodes stand in the wrong order."""
    nodes = [
        helper.make_node("Relu", ["s"], ["r"], "rectified"),
        helper.make_node("Add", ["b", "a"], ["s"], "plus"),
        helper.make_node("Conv", ["a", "w"], ["b"], "second", pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["x", "w"], ["a"], "first", pads=[1, 1, 1, 1]),
        helper.make_node("CumSum", ["r", "axis"], ["y"], "running"),
    ]
    weights = np.random.default_rng(0).standard_normal((4, 4, 3, 3)).astype(np.float32)
    shape = {"x": ["N", 4, 5, 7]}
    return save_model(tmp_path / "residual.onnx", nodes, shape, {"y": ["N", 4, 5, 7]}, w=weights, axis=np.array(1))


def test_every_node_of_the_plan(invoke_json: InvokeJson, residual: Path, device: str) -> None:
    told = invoke_json("explain", residual, "-d", device, "--shape", "x=2,4,5,7")
    assert set(told) == {"model", "device", "deferred", "partitions", "reorders", "memory", "seconds", "nodes"}
    assert (told["device"], told["partitions"], told["reorders"]) == (device, 1, 0)
    assert set(told["seconds"]) == {"passes", "compile"}
    first, second, running = told["nodes"]
    assert [n["node"] for n in told["nodes"]] == ["first", "second", "running"]
    assert second["operator"] == "Conv"
    assert second["kernel"]
    assert second["provider"].startswith("dovetail-")
    assert second["post_ops"] == ["add", "relu"]
    assert second["origins"] == ["second", "plus", "rectified"]
    assert running["kernel"] == "ref"
    assert running["refusals"], "the kernels before the reference refused"
    assert {refusal["reason"] for refusal in running["refusals"]} >= {"no kernel for this operator"}
    (written,) = second["outputs"]
    assert written == {
        "name": "r", "dtype": "float32", "shape": [2, 4, 5, 7], "layout": "PLAIN", "offset": written["offset"], "bytes": 1120,
    }  # fmt: skip
    assert [value["name"] for value in second["inputs"]] == ["a", "w", "a"], "the operand of the sum is read, too"
    assert second["inputs"][1]["offset"] is None
    assert first["outputs"][0]["offset"] == second["inputs"][0]["offset"]
    assert told["memory"][device] >= written["offset"] + written["bytes"]


def test_without_fusion(invoke_json: InvokeJson, residual: Path, device: str) -> None:
    told = invoke_json("explain", residual, "-d", device, "--no-fusion")
    assert [n["node"] for n in told["nodes"]] == ["first", "second", "plus", "rectified", "running"]
    assert not any(n["post_ops"] for n in told["nodes"])


def test_the_tables(invoke: Invoke, residual: Path, device: str) -> None:
    text = invoke("explain", residual, "-d", device).stdout
    assert re.search(r"second +Conv .* add, relu \(plus, rectified\) +[\d,]+ +560 B", text)
    assert re.search(rf"planned peak on {device} +\S+ k?B", text)
    assert re.search(r"merged nodes +2 *\n", text)
    assert re.search(r"memory layout +PLAIN", text), "said once, since all values have the same"
    assert re.search(r"no kernel for this operator.* running", text)


def test_a_narrow_terminal(invoke: Invoke, residual: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dovetail.cli.explain.narrow", lambda: True)
    text = invoke("explain", residual, "-d", device).stdout
    assert re.search(r"second +Conv +\S+ +dovetail-\S+ \S+ *\n", text)
    assert re.search(r"second +add, relu \(plus, rectified\) +[\d,]+ +560 B", text)


def test_a_chain_that_ends(invoke: Invoke, invoke_json: InvokeJson, tmp_path: Path, save_model: SaveModel, device: str) -> None:
    nodes = [
        helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"], f"r{i}") for i in range(34)
    ]  # one that carries 32, and one that is left  # fmt: skip
    model = save_model(tmp_path / "long.onnx", nodes, {"v0": [3]}, {"v34": [3]})
    told = invoke_json("explain", model, "-d", device)["nodes"]
    assert [len(n["post_ops"]) for n in told] == [32, 0]
    assert told[0]["stop"] == {"node": "r33", "reason": "post-op", "detail": "a chain holds at most 32 post-ops"}
    assert re.search(r"r0 +r33 +post-op: a chain holds at most 32 post-ops", invoke("explain", model, "-d", device).stdout)


def test_the_printout_of_the_seed(invoke: Invoke, tmp_path: Path, save_model: SaveModel) -> None:
    nodes = [
        helper.make_node("MaxPool", ["c"], ["y"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["x", "w"], ["c"], "conv", strides=[4, 4]),
    ]
    shapes = {"x": [1, 3, 16, 16]}, {"y": [1, 10, 2, 2]}
    model = save_model(tmp_path / "seed.onnx", nodes, *shapes, w=np.ones((10, 3, 4, 4), np.float32))
    assert invoke("explain", model, "--schedule").stdout.startswith(
        "<-------------------------------------->\n"
        "DirectedGraph Mat:\n"
        "False, True , False, False, \n"
        "False, False, True , False, \n"
        "False, False, False, True , \n"
        "False, False, False, False, \n"
        "<-------------------------------------->\n"
        "<-------------------------------------->\n"
        "DirectedGraph Mat:\n"
        "False, True , \n"
        "False, False, \n"
        "<-------------------------------------->\n"
        "depend of event is \n"
        "node=0--->[dpnum=0,dphead=-1,thisid=0]\n"
        "node=1--->[dpnum=1,dphead=0,thisid=1]\n"
        "node=2--->[dpnum=1,dphead=1,thisid=2]\n"
        "node=3--->[dpnum=1,dphead=2,thisid=-1]\n"
    )


def test_stages_of_unequal_size(invoke: Invoke, invoke_json: InvokeJson, tmp_path: Path, save_model: SaveModel) -> None:
    """Two inputs, stages of two and one nodes, two outputs; `b` waits for one producer, though its stage has two before it."""
    nodes = [
        helper.make_node("Tanh", ["u"], ["v"], "b"),
        helper.make_node("Abs", ["p"], ["u"], "a"),
        helper.make_node("Neg", ["q"], ["w"], "c"),
    ]
    model = save_model(tmp_path / "two.onnx", nodes, {"p": [2], "q": [2]}, {"v": [2], "w": [2]})
    text = invoke("explain", model, "--schedule").stdout
    lines = re.findall(r"node=(\d)--->\[dpnum=(-?\d),dphead=(-?\d),thisid=(-?\d)\]", text)
    assert [tuple(map(int, line)) for line in lines] == [
        (0, 0, -1, 0), (1, 0, -1, 1), (2, 2, 0, 2), (3, 2, 0, 3), (4, 2, 2, 4), (5, 1, 4, -1), (6, 1, 4, -1),
    ]  # fmt: skip
    rows = re.search(r"DirectedGraph Mat:\n((?:(?:True |False), .*\n)+)", text)
    assert rows is not None
    matrix = [[cell.strip() == "True" for cell in row.split(",")[:-1]] for row in rows[1].splitlines()]
    # p, q, a, c, b, v, w
    edges = {(i, j) for i, row in enumerate(matrix) for j, edge in enumerate(row) if edge}
    assert edges == {(0, 2), (1, 3), (2, 4), (4, 5), (3, 6)}
    told = invoke_json("explain", model, "--schedule")
    assert [[n["node"] for n in stage] for stage in told["stages"]] == [["a", "c"], ["b"]]
    assert told["stages"][1][0] == {"node": "b", "operator": "Tanh", "waits_for": ["a"]}
    assert told["outputs"] == [{"name": "v", "written_by": "b"}, {"name": "w", "written_by": "c"}]


def test_a_large_model_has_no_matrix(invoke: Invoke, tmp_path: Path, save_model: SaveModel) -> None:
    nodes = [helper.make_node("Neg", [f"v{i}"], [f"v{i + 1}"], f"n{i}") for i in range(63)]
    model = save_model(tmp_path / "long.onnx", nodes, {"v0": [3]}, {"v63": [3]})
    done = invoke("explain", model, "--schedule")
    assert "DirectedGraph" not in done.stdout
    assert "65 nodes are left out" in done.stderr
    assert "node=64--->[dpnum=1,dphead=63,thisid=-1]" in done.stdout


def test_a_cycle_names_its_nodes(invoke: Invoke, tmp_path: Path, save_model: SaveModel) -> None:
    nodes = [helper.make_node("Add", ["x", "b"], ["a"], "one"), helper.make_node("Neg", ["a"], ["b"], "two")]
    model = save_model(tmp_path / "cycle.onnx", nodes, {"x": [2]}, {"b": [2]})
    done = invoke("explain", model, "--schedule", code=1)
    assert re.search(r"cycle: 'two' \(Neg\) -> 'one' \(Add\) -> 'two' \(Neg\)", done.stderr)


def test_nodes_that_depend_on_data(invoke: Invoke, invoke_json: InvokeJson, tmp_path: Path, save_model: SaveModel) -> None:
    """They are planned for random inputs, so that they are told of, too."""
    nodes = [
        helper.make_node("SequenceConstruct", ["x", "x"], ["s"], "pair"),
        helper.make_node("SequenceAt", ["s", "i"], ["e"], "one"),
        helper.make_node("Neg", ["e"], ["y"], "turn"),
    ]
    model = save_model(tmp_path / "data.onnx", nodes, {"x": ["N", 3]}, {"y": ["N", 3]}, i=np.array(1))
    told = invoke_json("explain", model)
    assert told["deferred"] > 0
    assert [n["node"] for n in told["nodes"]] == ["pair", "one", "turn"]
    assert re.search(r"planned when data is there +\d nodes", invoke("explain", model).stdout)
