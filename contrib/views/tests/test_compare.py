"""compare: two devices that agree, two that do not, and where they part."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result
from onnx import helper

import dovetail
from dovetail.errors import InputError, UnknownOption
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.tanh import Tanh
from dovetail_views.distance import distance

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]
SaveModel = Callable[..., Path]


@pytest.fixture
def chain(tmp_path: Path, save_model: SaveModel) -> Path:
    """y = -relu(tanh(x))."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "squash"),
        helper.make_node("Relu", ["t"], ["r"], "rectify"),
        helper.make_node("Neg", ["r"], ["y"], "turn"),
    ]
    return save_model(tmp_path / "chain.onnx", nodes, {"x": ["N", 5]}, {"y": ["N", 5]})


DRIFT = """
import itertools
from dovetail.op import Operator

runs = itertools.count()

class Drift(Operator):
    domain = "com.acme"
    def reference(self, X):
        return X + 0.5 * (next(runs) % 2)
"""


@pytest.fixture
def drift(tmp_path: Path, save_model: SaveModel) -> tuple[Path, Path]:
    """y = -drift(tanh(x)) and the file of an operator whose every second run is wrong."""
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], "squash"),
        helper.make_node("Drift", ["t"], ["d"], "drifting", domain="com.acme"),
        helper.make_node("Neg", ["d"], ["y"], "turn"),
    ]
    file = tmp_path / "drift.py"
    file.write_text(DRIFT)
    return save_model(tmp_path / "drift.onnx", nodes, {"x": [2, 5]}, {"y": [2, 5]}), file


def test_a_device_agrees_with_itself(invoke: Invoke, invoke_json: InvokeJson, chain: Path, device: str) -> None:
    shown = invoke_json("compare", chain, "-d", device, "--seed", 3, "--shape", "x=4,5")
    assert shown["devices"] == [device, device]
    assert (shown["agree"], shown["first_difference"]) == (True, None)
    assert shown["values"] == [
        {"node": "turn", "operator": "Neg", "name": "y", "dtype": "float32", "shape": [4, 5], "absolute": 0, "relative": 0,
         "agree": True},
    ]  # fmt: skip
    assert re.search(r"y +Neg +float32\[1, 5\] +0 +0", invoke("compare", chain, "-d", device).stdout)


def test_the_reference_device_is_the_second(invoke_json: InvokeJson, chain: Path, device: str) -> None:
    assert invoke_json("compare", chain)["devices"][1] == device
    assert invoke_json("compare", chain, "-d", device)["devices"] == [device, device]


def test_every_node(invoke: Invoke, invoke_json: InvokeJson, chain: Path, device: str) -> None:
    shown = invoke_json("compare", chain, "-d", device, "--nodes")
    assert [(v["node"], v["name"]) for v in shown["values"]] == [("squash", "t"), ("rectify", "r"), ("turn", "y")]
    assert shown["agree"]


def test_devices_that_differ(invoke: Invoke, invoke_json: InvokeJson, drift: tuple[Path, Path], device: str) -> None:
    model, file = drift
    shown = invoke_json("compare", model, "-l", file, "-d", device, code=1)
    assert (shown["agree"], shown["first_difference"]) == (False, "y")
    assert shown["values"][0]["absolute"] == pytest.approx(0.5, rel=1e-6)
    done = invoke("compare", model, "-l", file, "-d", device, code=1)
    assert re.search(r"y +Neg +float32\[2, 5\] +0\.5 +\S+ +differs", done.stdout)
    assert "The first value that differs by more than 0.001 is y, of node turn (Neg)." in done.stderr
    assert invoke_json("compare", model, "-l", file, "-d", device, "--tolerance", 1e9)["agree"]


def test_the_first_node_that_differs(invoke: Invoke, invoke_json: InvokeJson, drift: tuple[Path, Path], device: str) -> None:
    model, file = drift
    shown = invoke_json("compare", model, "-l", file, "-d", device, "--nodes", code=1)
    assert [(v["name"], v["agree"]) for v in shown["values"]] == [("t", True), ("d", False), ("y", False)]
    assert shown["first_difference"] == "d"
    assert "is d, of node drifting (com.acme::Drift)" in invoke("compare", model, "-l", file, "--nodes", code=1).stderr


def test_inputs_from_files(invoke_json: InvokeJson, chain: Path, device: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.full((3, 5), 7, np.float32))
    shown = invoke_json("compare", chain, "-d", device, "-i", tmp_path / "x.npy", "--shape", "x=3,5")
    assert shown["values"][0]["shape"] == [3, 5]


@pytest.mark.parametrize("nodes", [[], ["--nodes"]], ids=["outputs", "nodes"])
def test_inputs_close_dimensions(invoke_json: InvokeJson, chain: Path, device: str, tmp_path: Path, nodes: list[str]) -> None:
    np.save(tmp_path / "x.npy", np.full((3, 5), 7, np.float32))
    told = invoke_json("compare", chain, "-d", device, "-i", tmp_path / "x.npy", *nodes)
    assert [value["shape"] for value in told["values"]] == [[3, 5]] * (3 if nodes else 1)


def test_comparing_nothing_is_a_failure(invoke: Invoke, chain: Path, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise InputError("these inputs do not fit")

    monkeypatch.setattr("dovetail_views.compare._run", fail)
    done = invoke("compare", chain, "-d", device, "--nodes", code=1)
    assert "no value could be compared" in done.stderr
    assert "t is left out: these inputs do not fit" in done.stderr


def test_three_devices(invoke: Invoke, chain: Path) -> None:
    assert "accepted: once or twice" in invoke("compare", chain, "-d", "A", "-d", "B", "-d", "C", code=2).stderr


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("got", "want", "absolute", "relative"),
    [
        ([1.0, 2.5], [1.0, 2.0], 0.5, 0.25),
        ([NAN, INF, -INF, 1], [NAN, INF, -INF, 2], 1.0, 0.5),
        ([NAN], [0.0], INF, INF),
        ([INF], [-INF], INF, INF),
        ([INF], [NAN], INF, INF),
        ([1e-3], [0.0], 1e-3, 1e-3),
        ([], [], 0.0, 0.0),
    ],
)
def test_distances(got: list[float], want: list[float], absolute: float, relative: float) -> None:
    assert distance(np.array(got), np.array(want)) == (absolute, relative)


def test_distances_of_other_types() -> None:
    assert distance(np.array([3], np.uint8), np.array([5], np.uint8)) == (2.0, 0.4)
    assert distance(np.array([True]), np.array([False]))[0] == 1
    assert distance(np.array([3 + 4j]), np.array([0j])) == (5.0, 5.0)
    assert distance(np.array(["a"], object), np.array(["a"], object)) == (0.0, 0.0)
    assert distance(np.array(["a"], object), np.array(["b"], object)) == (INF, INF)
    assert distance(np.zeros(2), np.zeros(3)) == (INF, INF)
    assert distance([np.zeros(2), np.array([1.0])], [np.zeros(2), np.array([2.0])]) == (1.0, 0.5)
    assert distance([np.zeros(2)], []) == (INF, INF)
    assert distance(None, None) == (0.0, 0.0)
    assert distance(None, np.zeros(1)) == (INF, INF)


def test_custom_layers_go_to_the_devices_that_take_them(invoke: Invoke, chain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    core, given = dovetail.Core(), []
    compile_model = core.compile_model

    def recording(model: Any, device: str, properties: Any = None) -> Any:
        given.append((device, properties))
        if properties and device == "DEFAULT":
            raise UnknownOption("no such option")
        return compile_model(model, device)

    monkeypatch.setattr(core, "compile_model", recording)
    monkeypatch.setattr("dovetail_views.compare.make_core", lambda extensions=(): core)
    invoke("compare", chain, "-c", "mine.xml")
    layers = {"CONFIG_FILE": ["mine.xml"]}
    assert given == [("DEFAULT", layers), ("DEFAULT", None), ("NUMPY", layers)]


def test_nodes_are_compared_without_repeating_warnings(
    invoke: Invoke, chain: Path, toy_core: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    core, _ = toy_core(A=lambda node: node.op.op_type == "Tanh", NUMPY=lambda node: False)
    model = _model()
    monkeypatch.setattr(core, "read_model", lambda path: model)
    monkeypatch.setattr("dovetail_views.compare.make_core", lambda extensions=(): core)
    invoke("compare", chain, "-d", "A", "--nodes")
    assert [message for message in caplog.messages if "runs on NUMPY" in message] == [
        "<graph>: node tanh (Tanh) runs on NUMPY.0; A.0: no kernel for this operator: Tanh"
    ]


def _model() -> Any:
    g = dovetail.GraphBuilder()
    return g.model([g.node(Relu(), g.node(Tanh(), g.input("x", "float32", [2])))])
