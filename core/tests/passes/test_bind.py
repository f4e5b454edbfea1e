"""Bind: operators are looked up, attributes read, old attributes become inputs, and errors name the node."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dovetail.errors import GraphError, OperatorError, UnknownOperator
from dovetail.graph import Graph, GraphBuilder, Node
from dovetail.op import NUMERIC, DType, Operator, UnboundOperator
from dovetail.passes import PassContext
from dovetail.passes.bind import MAX_DEPTH, bind
from dovetail.passes.pipeline import PASSES
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.scan import Scan, Scan_8


class Take(Operator):
    domain = "test"
    inputs = ("X: T", "indices?: int64", "scale?: float32")
    types = {"T": NUMERIC}
    legacy_attributes = {"indices": "indices", "scale": "scale"}
    axis: int
    mode: str = "clip"
    to: DType | None = None


class Nothing(Operator):
    domain = "test"
    inputs = ()


class Body(Operator):
    domain = "test"
    body: Graph


def find(domain: str, op_type: str, version: int) -> type[Operator]:
    if op_type not in ("Take", "Body"):
        raise UnknownOperator(f"no {domain}::{op_type}")
    return {"Take": Take, "Body": Body}[op_type]


def one(op_type: str = "Take", **raw: Any) -> Graph:
    g = GraphBuilder()
    x = g.input("x", "float32", [4])
    return g.graph([g.node(UnboundOperator("test", op_type, 1, raw), x, name="node7")])


def test_attributes_are_read_and_defaults_filled_in() -> None:
    op = bind(one(axis=np.int64(1), to=1), find).nodes[0].op
    assert isinstance(op, Take)
    assert (op.axis, op.mode, op.to) == (1, "clip", DType.FLOAT32)
    assert op.key == "test::Take"


def test_the_pass_asks_about_an_operator_once() -> None:
    asked: list[tuple[str, str, int]] = []

    def noted(*question: Any) -> type[Operator]:
        asked.append(question)
        return find(*question)

    g = GraphBuilder()
    x = g.input("x", "float32", [4])
    inner = one(axis=0)
    names = [g.node(UnboundOperator("test", kind, 1, raw), x) for kind, raw in (("Take", {"axis": 0}), ("Body", {"body": inner}))]
    definitions: Any = SimpleNamespace(find=noted)
    run = next(one.run for one in PASSES if one.name == "bind")
    bound = run(g.graph([*names, g.node(UnboundOperator("test", "Take", 2, {"axis": 1}), x)]), PassContext(definitions))
    assert [type(node.op) for node in bound.nodes] == [Take, Body, Take]
    assert asked == [("test", "Take", 1), ("test", "Body", 1), ("test", "Take", 2)]


def test_an_attribute_of_old_versions_becomes_a_constant_input() -> None:
    graph = bind(one(axis=0, indices=(3, 1), scale=2.5), find)
    node = graph.nodes[0]
    indices: NDArray[Any] = graph.constants[node.inputs[1]]
    scale: NDArray[Any] = graph.constants[node.inputs[2]]
    assert indices.dtype == np.int64
    assert indices.tolist() == [3, 1]
    assert scale.dtype == np.float32
    assert scale == 2.5
    assert not indices.flags.writeable


def test_the_constant_input_leaves_a_constant_of_the_model_alone() -> None:
    graph = one(axis=0, indices=(3, 1))
    graph = bind(graph.replace(constants={"node7.indices": np.ones(2)}), find)
    assert graph.constants["node7.indices"].tolist() == [1, 1]
    assert graph.constants[graph.nodes[0].inputs[1]].tolist() == [3, 1]


def test_an_input_skipped_on_the_way_is_left_out() -> None:
    node = bind(one(axis=0, scale=1.0), find).nodes[0]
    assert node.inputs[1] == ""


def test_inputs_of_newer_versions_may_be_left_out_by_name() -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [4])
    graph = g.graph([g.node(UnboundOperator("test", "Take", 1, {"axis": 0}), x, "", "", "", "")])
    assert len(bind(graph, find).nodes[0].inputs) == 3


def test_an_operator_without_inputs_may_have_empty_names() -> None:
    g = GraphBuilder()
    graph = g.graph([g.node(UnboundOperator("test", "Nothing", 1, {}), "", "")])
    assert bind(graph, lambda *_: Nothing).nodes[0].inputs == ()


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ({}, "'axis' is missing"),
        ({"axis": "one"}, "'axis' is 'one' .str.; accepted: int"),
        ({"axis": 1.5}, "accepted: int"),
        ({"axis": 0, "to": 99}, "accepted: DType"),
        ({"axis": 0, "mod": "wrap"}, "unknown attribute 'mod'\n  Did you mean 'mode'"),
    ],
)
def test_bad_attributes_name_node_attribute_and_what_is_accepted(raw: dict[str, Any], said: str) -> None:
    with pytest.raises(OperatorError, match=said) as caught:
        bind(one(**raw), find)
    assert "node 'node7' (test::Take)" in str(caught.value)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        ([], "input 'X' is required; got 0 inputs"),
        (["", "x"], "input 'X' is required and was left out"),
        (["x", "", "", "x", ""], "takes at most 3 inputs, got 4"),
    ],
)
def test_passes_see_no_inputs_that_the_operator_does_not_have(names: list[str], said: str) -> None:
    g = GraphBuilder()
    g.input("x", "float32", [4])
    graph = g.graph([g.node(UnboundOperator("test", "Take", 1, {"axis": 0}), *names, name="node7")])
    with pytest.raises(OperatorError, match=f"node 'node7' .*{said}"):
        bind(graph, find)


def test_the_same_thing_as_attribute_and_as_input_is_an_error() -> None:
    g = GraphBuilder()
    x, i = g.input("x", "float32", [4]), g.input("i", "int64", [1])
    graph = g.graph([g.node(UnboundOperator("test", "Take", 1, {"axis": 0, "indices": (1,)}), x, i, name="node7")])
    with pytest.raises(OperatorError, match=r"'node7' .*both the attribute 'indices' .* and the input 'i'"):
        bind(graph, find)


def test_an_unknown_operator_names_the_node() -> None:
    with pytest.raises(UnknownOperator, match=r"node 'node7' .test::Nothing.: no test::Nothing"):
        bind(one("Nothing"), find)


def test_sub_graphs_are_bound_too() -> None:
    inner = one(axis=0)
    op = bind(one("Body", body=inner), find).nodes[0].op
    assert isinstance(op, Body)
    assert isinstance(op.body.nodes[0].op, Take)


def test_nesting_has_a_limit() -> None:
    graph = one(axis=0)
    for _ in range(MAX_DEPTH + 2):
        graph = one("Body", body=graph)
    with pytest.raises(GraphError, match=f"more than {MAX_DEPTH} deep"):
        bind(graph, find)


def _adds(inputs: int, outputs: int) -> Graph:
    """A sub-graph of so many inputs and outputs."""
    g = GraphBuilder("body")
    names = [g.input(f"body{i}", "float32", ()) for i in range(inputs)] or [g.constant(np.float32(1))]
    return g.graph([g.node(Add(), names[0], names[-1]) for _ in range(outputs)])


@pytest.mark.parametrize(
    ("op", "inputs", "given"),
    [
        (If, 1, {"then_branch": _adds(0, 3), "else_branch": _adds(0, 2)}),
        (Loop, 3, {"body": _adds(3, 3)}),
        (Scan, 2, {"body": _adds(2, 2), "num_scan_inputs": 1}),
        (Scan_8, 3, {"body": _adds(2, 2), "num_scan_inputs": 1}),
    ],
)
def test_outputs_that_no_sub_graph_gives(op: type[Operator], inputs: int, given: dict[str, Any]) -> None:
    """Each of these has two outputs at most."""
    g = GraphBuilder()
    names = [g.input(f"x{i}", "float32", (2,)) for i in range(inputs)]

    def graph(count: int) -> Graph:
        outputs = tuple(f"y{i}" for i in range(count))
        return g.graph(names).replace(nodes=(Node("node7", UnboundOperator("", op.op_type, 11, given), tuple(names), outputs),))

    assert isinstance(bind(graph(2), lambda *_: op).nodes[0].op, op)
    with pytest.raises(OperatorError, match=r"node7.*has 3 outputs, its sub-graph gives 2"):
        bind(graph(3), lambda *_: op)
