"""TRACE writes a line for each value, and nothing unless it is requested."""

import json
from pathlib import Path

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError, UsageError
from dovetail.graph import GraphBuilder, Model
from dovetail.op import operator
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.log import Log
from dovetail_ops_onnx.relu import Relu


def example() -> Model:
    g = GraphBuilder()
    x = g.input("x", "float32", ["N"])
    return g.model([g.node(Relu(), g.node(Log(), x, name="log"), name="relu")])


def test_a_line_for_each_node_of_each_run(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    with dovetail.Core().compile_model(example(), "TRACE", {"FILE": str(file)}) as compiled:
        np.testing.assert_allclose(compiled(np.float32([1, np.e]))[0], [0, 1], rtol=1e-6)
        compiled(np.float32([-1, 1, np.exp(2)]))
        compiled(np.float32([-1]))
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    assert [(line["node"], line["op"], line["type"], line["nan"]) for line in lines] == [
        ("log", "Log", "float32[2]", 0),
        ("relu", "Relu", "float32[2]", 0),
        ("log", "Log", "float32[3]", 1),
        ("relu", "Relu", "float32[3]", 1),
        ("log", "Log", "float32[1]", 1),
        ("relu", "Relu", "float32[1]", 1),
    ]
    assert (lines[2]["least"], lines[2]["greatest"]) == (0.0, pytest.approx(2.0))
    assert (lines[4]["least"], lines[4]["greatest"]) == (None, None)


def test_nothing_is_written_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    dovetail.Core().compile_model(example(), "TRACE")(np.float32([1]))
    assert list(tmp_path.iterdir()) == []


def test_other_devices_come_first() -> None:
    core = dovetail.Core()
    assert core.available_devices[-1] == "TRACE"
    for word in ("DEFAULT", "CPU"):
        assert core.compile_model(example(), word).device != "TRACE"


def test_unknown_options_are_refused() -> None:
    core = dovetail.Core()
    with pytest.raises(UsageError, match="TRACE has no option 'FIEL'\n  Did you mean 'FILE'"):
        core.compile_model(example(), "TRACE", {"FIEL": "x"})
    with pytest.raises(UsageError, match="property FILE of TRACE is 3; accepted: the path of a file"):
        core.compile_model(example(), "TRACE", {"FILE": 3})


def test_a_reference_that_fails_is_named() -> None:
    @operator("test.ops")
    def moody(X: object) -> object:
        raise ValueError("not today")

    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    model = g.model([g.node(moody(), g.node(Add(), x, x), name="second")])
    with pytest.raises(InferError, match=r"TRACE, node .*second.*not today"):
        dovetail.Core().compile_model(model, "TRACE")(np.float32([1, 2]))
