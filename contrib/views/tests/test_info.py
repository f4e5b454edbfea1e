"""`dovetail info`: small models, and operators that devices run in different ways, with custom layers too."""

import copy
import dataclasses
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import Result
from onnx import helper

from dovetail.device import Accepted
from dovetail.errors import UnknownOption
from dovetail.graph import DType, GraphBuilder, TensorType
from dovetail.internal.opaque import OpaqueOperator
from dovetail.op import Operator, UnboundOperator
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.relu import Relu

Invoke = Callable[..., Result]
InvokeJson = Callable[..., Any]


class Doubled(Operator):
    """--x."""

    domain = "com.acme"

    def compose(self, g: Any, x: str) -> Any:
        return g.node(Neg(), g.node(Neg(), x))


@pytest.fixture
def custom(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session with a device that may get a kernel for Mystery, one that may not, and a model of Mystery, Doubled and Relu."""
    core, _ = toy_core(PLAIN=lambda node: False, OPEN=lambda node: False)
    g = GraphBuilder()
    x = g.node(Relu(), g.node(Doubled(), g.input("x", "float32", (2,))))
    y = g.node(UnboundOperator("com.acme", "Mystery", 1, {}), x, name="mystery")
    made = g.model([y])
    types = {**made.graph.types, y: TensorType(DType.FLOAT32, (2,))}
    made = dataclasses.replace(made, graph=made.graph.replace(types=types))
    kind = type(core.plugins.open_device("OPEN.0", {}))

    def configured(self: Any, options: Any) -> Any:
        if options and self.info.type == "PLAIN":
            raise UnknownOption("PLAIN has no option 'CONFIG_FILE'")
        other = copy.copy(self)
        other.prescribes = lambda domain, op_type: bool(options) and op_type == "Mystery"
        return other

    monkeypatch.setattr(kind, "configured", configured)
    monkeypatch.setattr(kind, "supports", lambda _, node: Accepted("mine" if isinstance(node.op, OpaqueOperator) else "ref"))
    monkeypatch.setattr("dovetail_views.info.make_core", lambda extensions=(): core)
    monkeypatch.setattr(core, "read_model", lambda path: made)


@pytest.mark.usefixtures("custom")
def test_info_with_custom_layers(invoke: Invoke, invoke_json: InvokeJson) -> None:
    shown = invoke_json("info", "m", "-c", "layers.xml")
    rows = {row["operator"]: row for row in shown["operators"]}
    assert (rows["com.acme::Mystery"]["provider"], rows["com.acme::Mystery"]["flops"], shown["flops"]) == (None, None, None)
    plain, opened = (next(d for d in shown["devices"] if d["device"] == name) for name in ("PLAIN.0", "OPEN.0"))
    assert "com.acme::Mystery" in plain["error"]
    ways = {row["operator"]: (row["way"], row["kernels"]) for row in opened["operators"]}
    assert ways == {
        "com.acme::Doubled": ("composition", ["ref"]),
        "Relu": ("reference", ["ref"]),
        "com.acme::Mystery": ("custom kernel", ["mine"]),
    }
    text = invoke("info", "m", "-c", "layers.xml").stdout
    assert re.search(r"FLOPs +not known", text)
    assert re.search(r"com.acme::Mystery +1 +\? +- +error +custom kernel +-", text)
    assert re.search(r"com.acme::Mystery +OPEN.0 +custom kernel +mine +toy-open", text)
    assert re.search(r"com.acme::Doubled +OPEN.0 +composition +ref +session", text)


@pytest.mark.usefixtures("custom")
def test_info_of_an_unknown_operator(invoke: Invoke) -> None:
    """The output has the model as far as it was read, and the operators that are known."""
    done = invoke("info", "m", code=1)
    assert "no operator com.acme::Mystery is known" in done.stderr
    assert re.search(r"input \w+ +float32\[2\]", done.stdout)
    assert re.search(r"com.acme::Mystery +1 +\? +- +-", done.stdout)
    assert re.search(r"Relu +1 +\? +- +dovetail-ops-onnx ", done.stdout)
    shown = json.loads(invoke("info", "m", "--json", code=1).stdout)
    assert (shown["nodes"], shown["devices"], shown["flops"]) == (3, [], None)
    assert {row["operator"]: row["provider"] is None for row in shown["operators"]} == {
        "com.acme::Mystery": True, "Relu": False, "com.acme::Doubled": False,
    }  # fmt: skip


def test_nodes_of_sub_graphs_have_device_and_kernel(invoke: Invoke, invoke_json: InvokeJson, tmp_path: Path) -> None:
    path = tmp_path / "branches.onnx"
    value = helper.make_tensor_value_info
    then = helper.make_graph([helper.make_node("Sin", ["x"], ["t"], "wave")], "then", [], [value("t", 1, [3])])
    other = helper.make_graph([helper.make_node("Cos", ["x"], ["e"], "other")], "else", [], [value("e", 1, [3])])
    choose = helper.make_node("If", ["c"], ["y"], "choose", then_branch=then, else_branch=other)
    graph = helper.make_graph([choose], "g", [value("x", 1, [3]), value("c", 9, [])], [value("y", 1, [3])])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    found = {one["path"]: one["nodes"] for one in invoke_json("info", path)["subgraphs"]}
    assert set(found) == {"choose/then_branch", "choose/else_branch"}
    (wave,) = found["choose/then_branch"]
    assert (wave["node"], wave["operator"], wave["post_ops"]) == ("wave", "Sin", [])
    assert wave["device"]
    assert wave["kernel"]
    assert re.search(r"choose/else_branch +other +Cos", invoke("info", path).stdout)


def test_info(invoke_json: InvokeJson, linear: Path, device: str) -> None:
    shown = invoke_json("info", linear, "--shape", "x=4,3")
    assert set(shown) == {
        "model", "format", "opsets", "inputs", "outputs", "nodes", "parameters", "parameter_bytes", "flops", "activation_bytes",
        "activation_bytes_unshared", "operators", "subgraphs", "devices", "output_types", "overridable",
    }  # fmt: skip
    assert list(shown["output_types"].values()) == [{"dtype": "float32", "shape": [4, 2], "declared_shape": ["N", 2]}]
    assert shown["opsets"] == {"": 17, "com.acme": 1}
    assert shown["inputs"] == {"x": {"dtype": "float32", "shape": ["N", 3], "used_shape": [4, 3]}}
    assert (shown["nodes"], shown["parameters"], shown["parameter_bytes"]) == (3, 8, 32)
    assert shown["flops"] == 4 * (12 + 2 + 2)
    assert 0 < shown["activation_bytes"] <= shown["activation_bytes_unshared"]
    rows = {row["operator"]: row for row in shown["operators"]}
    provider = rows["MatMul"].pop("provider")
    assert provider.startswith("dovetail-ops-onnx ")
    assert rows["MatMul"] == {"operator": "MatMul", "count": 1, "analyzed": 1, "flops": 48}
    (mine,) = (d for d in shown["devices"] if d["device"] == device)
    assert (mine["error"], mine["accepted"], mine["nodes"], mine["refused"]) == (None, 3, 3, [])
    assert mine["provider"].startswith("dovetail-")
    served = {row["operator"]: row for row in mine["operators"]}
    assert served["MatMul"].pop("kernels") != []
    assert served["MatMul"] == {"operator": "MatMul", "way": "kernel", "provider": mine["provider"], "nodes": 1}
    assert sum(row["nodes"] for row in mine["operators"]) == 3
    assert mine["provider"].split()[0].endswith(device.partition(".")[0].lower())


def test_info_takes_open_dimensions_as_1(invoke: Invoke, invoke_json: InvokeJson, linear: Path) -> None:
    shown = invoke_json("info", linear)
    assert shown["inputs"]["x"] == {"dtype": "float32", "shape": ["N", 3], "used_shape": [1, 3]}
    assert shown["flops"] == 16
    text = invoke("info", linear).stdout
    assert "float32[N, 3], here [1, 3]" in text
    assert re.search(r"MatMul +1 +12 +75.0% +kernel", text)
    assert re.search(r"output \w+ +float32\[N, 2\], here \[1, 2\]", text)
    assert re.search(r"NUMPY +dovetail-cpu-numpy \S+ +3 of 3", text)


def test_info_names_refused_nodes(
    invoke: Invoke, invoke_json: InvokeJson, toy_core: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, _ = toy_core(PICKY=lambda node: node.op.key == "Relu")
    g = GraphBuilder()
    model = g.model([g.node(Relu(), g.node(Neg(), g.input("x", "float32", (2,))), name="relu")])
    monkeypatch.setattr("dovetail_views.info.make_core", lambda extensions=(): core)
    monkeypatch.setattr(core, "read_model", lambda path: model)
    (picky,) = invoke_json("info", "m")["devices"]
    assert (picky["accepted"], picky["nodes"]) == (1, 2)
    assert picky["refused"] == [{"node": "relu", "operator": "Relu", "reason": "no kernel for this operator", "detail": "Relu"}]
    text = invoke("info", "m").stdout
    assert re.search(r"Relu +1 +2 +50.0% +refused", text)
    assert re.search(r"PICKY.0 +Relu +no kernel for this operator: Relu +relu", text)
