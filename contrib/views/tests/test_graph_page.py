"""The graph page: its data, and what a browser shows of it."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail import GraphBuilder, Model
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cos import Cos
from dovetail_ops_onnx.sin import Sin
from dovetail_views.graph_page import graph_data, graph_page

Browse = Callable[[Path, str, str], dict[str, Any]]


def data_of(model: Model, device: str = "NUMPY", inputs: Any = None) -> Any:
    core = dovetail.Core()
    with core.compile_model(model, device) as compiled:
        if inputs is not None:
            compiled(inputs)
        compiled.plan_subgraphs()
        return graph_data(model, compiled, core.analyze(model).types)


def names(nodes: list[dict[str, Any]], ids: list[int]) -> list[str]:
    return [nodes[index]["name"] for index in ids]


def test_nodes_of_the_plan_are_joined_with_those_of_the_model(chain: Model) -> None:
    views = data_of(chain)["views"]
    model, plan = views["model"]["nodes"], views["plan"]["nodes"]
    assert [node["op"] for node in model] == ["MatMul", "Add", "Relu", "Softmax"]
    assert names(model, plan[0]["model"]) == ["product", "total", "positive"]
    assert names(plan, model[2]["plan"]) == ["product"]
    assert {(model[e["from"]]["name"], model[e["to"]]["name"]) for e in views["model"]["edges"]} == {
        ("product", "total"),
        ("total", "positive"),
        ("positive", "shares"),
    }
    assert [edge["label"] for edge in views["plan"]["edges"]] == ["float32[3, 5] PLAIN"]


def test_nodes_of_sub_graphs_have_edges_from_what_holds_them(looping: Model) -> None:
    views = data_of(looping, inputs={"count": np.array(0), "x": np.zeros((3, 3), np.float32)})["views"]
    plan = views["plan"]["nodes"]
    assert [node["name"] for node in plan] == ["loop", "loop/body/product", "twice"]
    inside = [(plan[e["from"]]["name"], plan[e["to"]]["name"], e.get("inside", False)) for e in views["plan"]["edges"]]
    assert inside == [("loop", "loop/body/product", True), ("loop", "twice", False)]
    assert names(views["model"]["nodes"], plan[1]["model"]) == ["loop/body/product", "loop/body/positive"]


def test_names_cannot_end_the_script() -> None:
    g = GraphBuilder()
    y = g.node(Sin(), g.input("x", "float32", (2,)), name="</script><b>&amp;")
    page = graph_page(data_of(g.model([y], "</title><i>")))
    content = page.partition('id="data">')[2].partition("</script>")[0]
    assert json.loads(content)["views"]["model"]["nodes"][0]["name"] == "</script><b>&amp;"
    assert "<b>" not in page
    assert "<i>" not in page


def test_the_page_loads_nothing(chain: Model) -> None:
    page = graph_page(data_of(chain))
    assert "default-src 'none'" in page
    assert "src=" not in page.replace("default-src", "").replace("script-src", "").replace("style-src", "")


@pytest.fixture
def page(tmp_path: Path, chain: Model) -> Path:
    written = tmp_path / "graph.html"
    written.write_text(graph_page(data_of(chain)), encoding="utf-8")
    return written


def test_a_click_shows_details_and_marks_the_nodes_of_the_model(browse: Browse, page: Path) -> None:
    seen = browse(
        page,
        "#view=both",
        """
        const box = (name) => document.querySelector(`#pane-plan [data-name="${name}"]`);
        box("product").dispatchEvent(new MouseEvent("click", { bubbles: true }));
        const related = [...document.querySelectorAll("#pane-model .related")].map((node) => node.dataset.name);
        const details = document.getElementById("details").textContent;
        const before = box("product").querySelectorAll("text").length;
        document.getElementById("open").click();
        report({ related, details, hash: location.hash, opened: box("product").querySelectorAll("text").length - before });
        """,
    )
    assert seen["related"] == ["product", "total", "positive"]
    assert seen["opened"] == 3
    assert seen["hash"] == "#view=both&node=product"
    assert "NUMPY" in seen["details"]


def test_refusals_of_a_node_are_shown(browse: Browse, tmp_path: Path) -> None:
    g = GraphBuilder()
    y = g.node(Sin(), g.input("x", "float64", (2, 3)), name="wave")
    data = data_of(g.model([y]), "NUMPY")
    refused = data["views"]["plan"]["nodes"][0]["refusals"]
    assert refused
    written = tmp_path / "graph.html"
    written.write_text(graph_page(data), encoding="utf-8")
    seen = browse(written, "#view=plan&node=wave", 'report({ details: document.getElementById("details").textContent });')
    assert "Refused by" in seen["details"]
    assert all(one in seen["details"] for one in refused)


def test_search_view_colour_and_deep_link(browse: Browse, page: Path) -> None:
    seen = browse(
        page,
        "#view=model&node=total",
        """
        const linked = document.querySelector(".selected").dataset.name;
        const hidden = ["model", "plan"].map((name) => document.getElementById(`pane-${name}`).hidden);
        document.querySelector('[data-view="both"]').click();
        const search = document.getElementById("search");
        search.value = "softmax";
        search.dispatchEvent(new Event("input"));
        search.dispatchEvent(new KeyboardEvent("keydown", { key: "Enter" }));
        const colour = document.getElementById("colour");
        colour.value = "kernel";
        colour.dispatchEvent(new Event("change"));
        report({ linked, hidden, hits: document.getElementById("hits").textContent,
                 found: document.querySelector(".selected").dataset.name,
                 missed: document.querySelectorAll(".miss").length, legend: document.getElementById("legend").textContent,
                 hash: location.hash });
        """,
    )
    assert seen["linked"] == "total"
    assert seen["hidden"] == [False, True]
    assert seen["hits"] == "2 found"
    assert seen["found"] == "shares"
    assert seen["missed"] == 4
    assert "matmul" in seen["legend"]
    assert seen["hash"] == "#view=both&colour=kernel&node=shares"
    again = browse(
        page,
        seen["hash"],
        """
        report({ colour: document.getElementById("colour").value, legend: document.getElementById("legend").textContent,
                 selected: document.querySelector("#pane-plan .selected").dataset.name });
        """,
    )
    assert again == {"colour": "kernel", "legend": seen["legend"], "selected": "shares"}


def test_a_wide_graph_begins_with_its_first_node_in_view(browse: Browse, tmp_path: Path) -> None:
    rng, g = np.random.default_rng(0), GraphBuilder()
    values = [g.input("x", "float32", (2,))]
    for index in range(600):
        other = values[rng.integers(max(0, len(values) - 6), len(values))]
        value = g.node(Sin(), values[-1]) if index % 2 else g.node(Add(), values[-1], other)
        values.append(value)
    written = tmp_path / "graph.html"
    written.write_text(graph_page(data_of(g.model([values[-1]]))), encoding="utf-8")
    seen = browse(
        written,
        "#view=model",
        """
        const pane = panes.model, area = pane.svg.getBoundingClientRect();
        const first = [...pane.graph.boxes.values()].reduce((one, other) => (other.y < one.y ? other : one));
        report({ x: (first.x * pane.scale + pane.x) / area.width, y: (first.y * pane.scale + pane.y) / area.height,
                 wide: pane.graph.width * pane.scale / area.width });
        """,
    )
    assert seen["wide"] > 1
    assert 0 < seen["x"] < 1
    assert 0 < seen["y"] < 1


def test_labels_of_edges_overlap_neither_each_other_nor_nodes(browse: Browse, tmp_path: Path) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", (1, 144, 112, 112))
    value = g.node(Sin(), x, name="first")
    for _ in range(4):
        value = g.node(Add(), value, g.node(Cos(), g.node(Sin(), value)))
    written = tmp_path / "graph.html"
    written.write_text(graph_page(data_of(g.model([value]))), encoding="utf-8")
    seen = browse(
        written,
        "#view=model",
        """
        const pane = panes.model;
        const frames = [...pane.svg.querySelectorAll(".edge text, .node rect")].map((one) => one.getBoundingClientRect());
        const meet = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
        report({ frames: frames.length, far: pane.svg.classList.contains("far"),
                 meeting: frames.flatMap((a, i) => frames.slice(i + 1).filter((b) => meet(a, b))).length });
        """,
    )
    assert seen == {"frames": 13 + 16, "far": False, "meeting": 0}


def test_the_legend_tells_what_was_computed_while_planning(browse: Browse, tmp_path: Path) -> None:
    g = GraphBuilder()
    known = g.node(Sin(), g.constant(np.ones(2, np.float32)))
    written = tmp_path / "graph.html"
    written.write_text(graph_page(data_of(g.model([g.node(Add(), g.input("x", "float32", (2,)), known)]))), encoding="utf-8")
    seen = browse(written, "", 'report({ legend: document.getElementById("legend").textContent })')
    assert seen["legend"] == "NUMPYcomputed while planning"


def test_two_thousand_nodes_are_drawn_without_overlaps(browse: Browse, tmp_path: Path) -> None:
    g = GraphBuilder()
    value = g.input("x", "float32", (2,))
    for index in range(2000):
        value = g.node((Sin, Cos)[index % 2](), value, name=f"node_{index}")
    written = tmp_path / "graph.html"
    written.write_text(graph_page(data_of(g.model([value]))), encoding="utf-8")
    seen = browse(
        written,
        "#view=model",
        """
        const boxes = [...panes.model.graph.boxes.values()];
        const tops = boxes.map((box) => box.y - box.height / 2).sort((a, b) => a - b);
        report({ nodes: boxes.length, ready: Number(document.body.dataset.ready),
                 closest: Math.min(...tops.slice(1).map((top, index) => top - tops[index])) });
        """,
    )
    assert seen["nodes"] == 2000
    assert seen["closest"] > 34
    assert seen["ready"] > 0
