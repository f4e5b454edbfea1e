"""The display of objects in a notebook: a line, whatever their size and their names."""

import json
import pickle
import re
from html.parser import HTMLParser
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import GraphError
from dovetail.op import GraphBuilder
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.split import Split

HOSTILE = "\x1b[31m" + "x" * 5000


def builder(nodes: int, name: str = "x") -> tuple[GraphBuilder, str]:
    g = GraphBuilder()
    x = g.input(name, "float32", ["N", 3])
    for index in range(nodes):
        x = g.node(Add(), x, x) if index else g.node(Relu(), x)
    return g, x


def test_a_large_model_is_a_line_with_its_operators() -> None:
    g, y = builder(500)
    model = g.model([y])
    assert repr(model) == "<Model <graph>: 500 nodes (499 Add, Relu), x: float32[N, 3] -> add_498:0>"
    assert repr(model.graph) == "<Graph graph: 500 nodes (499 Add, Relu), x: float32[N, 3] -> add_498:0>"
    assert repr(model.graph.nodes[1]) == "<Node 'add' (Add): relu:0, relu:0 -> add:0>"
    assert repr(g) == "<GraphBuilder: 500 nodes, inputs x>"
    chain = dovetail.PostOps().append_sum("before").append_eltwise("relu")
    assert repr(chain) == "<PostOps: sum(before) + relu>"
    assert repr(model.with_post_ops("relu", dovetail.PostOps().append_eltwise("tanh")).graph.nodes[0]) == (
        "<Node 'relu' (Relu) + tanh: x -> relu:0>"
    )


def test_hostile_names_are_escaped_and_cut() -> None:
    g, y = builder(2, HOSTILE)
    model = g.model([y], HOSTILE)
    for shown in map(repr, (model, model.graph, model.graph.nodes[0], g)):
        assert len(shown) < 700
        assert "\x1b" not in shown
        assert "\\x1b[31m" in shown


def test_sessions_requests_and_results(toy_core: Any) -> None:
    core, _ = toy_core(A=lambda node: False)
    assert re.fullmatch(r"<Core: \d+ plugins, devices opened: none>", repr(core))
    g, y = builder(1)
    compiled = core.compile_model(g.model([y]), "A")
    request = compiled.create_infer_request()
    assert repr(request) == "<InferRequest of <graph>, idle>"
    found = request.infer(np.zeros((1, 3), np.float32))
    assert found._ipython_key_completions_() == ["relu:0"]
    request.close()
    assert repr(request) == "<InferRequest of <graph>, closed>"
    assert re.fullmatch(r"<Core: \d+ plugins, devices opened: A.0>", repr(core))
    assert repr(dovetail.AsyncInferQueue(compiled, 3)) == "<AsyncInferQueue of 3 requests, 0 in use>"


def test_a_core_says_that_it_does_not_pickle(toy_core: Any) -> None:
    core, _ = toy_core()
    with pytest.raises(TypeError, match=r"a Core does not pickle.*CompiledModel"):
        pickle.dumps(core)


def test_names_that_nothing_defines_are_refused_when_the_graph_is_built() -> None:
    g, y = builder(1)
    with pytest.raises(GraphError, match=r"(?s)the output 'relu:1' is not defined.*Did you mean 'relu:0'"):
        g.model(["relu:1"])
    with pytest.raises(GraphError, match=r"reads 1.5 \(float\)"):
        g.node(Add(), y, 1.5)
    parts = g.node(Split(num_outputs=2), y, outputs=2)
    with pytest.raises(GraphError, match=r"reads \('split:0', 'split:1'\) \(tuple\)"):
        g.node(Relu(), parts)


class _Table(HTMLParser):
    """The tags of a table, and its text."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(source)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data + "\n"


def test_notebooks_show_tables() -> None:
    core = dovetail.Core()
    g, y = builder(3, name="<b>x")
    model = g.model([y])
    with core.compile_model(model.reshape({"<b>x": (2, 3)}), "NUMPY") as compiled:
        results = compiled({"<b>x": np.full((2, 3), 0.5, np.float32)})
        shown = {
            type(one).__name__: _Table(one._repr_html_())
            for one in (core, core.devices[0], model, model.graph, compiled.report(), results)
        }
    assert set(shown) == {"Core", "DeviceInfo", "Model", "Graph", "PlanReport", "Results"}
    assert all(set(one.tags) == {"table", "caption", "tr", "th", "td"} for one in shown.values())
    assert "NUMPY" in shown["Core"].text
    assert "<b>x\nfloat32[N, 3]" in shown["Model"].text
    assert "relu\nRelu\n<b>x\nrelu:0" in shown["Graph"].text
    assert "2, 2, 2, 2, 2, 2" in shown["Results"].text
    assert "dovetail-cpu-numpy" in shown["PlanReport"].text


def test_a_large_graph_shows_its_first_nodes() -> None:
    g, y = builder(150)
    table = _Table(g.model([y]).graph._repr_html_())
    assert table.tags.count("tr") == 101
    assert "50 more" in table.text


def test_a_report_is_a_line() -> None:
    core = dovetail.Core()
    g, y = builder(3)
    with core.compile_model(g.model([y]).reshape({"x": (2, 3)}), "NUMPY", {"FUSION": False}) as compiled:
        report = compiled.report()
    assert repr(report) == "<PlanReport: 3 nodes on NUMPY, 0 reorders>"
    assert repr(report.nodes[0]).startswith("<NodePlacement relu (Relu) on NUMPY by ")


def test_a_report_is_plain_values() -> None:
    g, y = builder(2)
    compiled = dovetail.Core().compile_model(g.model([y]).reshape({"x": (2, 3)}), "NUMPY", {"FUSION": False})
    found = json.loads(json.dumps(compiled.report().as_dict()))
    assert [(node["node"], node["operator"], node["device"]) for node in found["nodes"]] == [
        ("relu", "Relu", "NUMPY"),
        ("add", "Add", "NUMPY"),
    ]
    value = {"name": "x", "dtype": "float32", "shape": [2, 3], "layout": "PLAIN", "bytes": 24}
    assert {name: found["nodes"][0]["inputs"][0][name] for name in value} == value
    assert found["nodes"][0]["outputs"][0]["name"] == "relu:0"
