"""Validate: what is wrong with a graph is found, and named by node."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from dovetail.errors import GraphError
from dovetail.graph import DType, Graph, Node, TensorType
from dovetail.graph.validate import validate
from dovetail.op import Operator, UnboundOperator


def node(name: str, reads: str, writes: str, *graphs: Graph) -> Node:
    op: Operator = UnboundOperator("", "Op", 1, {f"g{i}": g for i, g in enumerate(graphs)})
    return Node(name, op, tuple(reads.split()), tuple(writes.split()))


def graph(nodes: Sequence[Node], inputs: str = "x", outputs: str = "y", constants: str = "") -> Graph:
    types = {n: TensorType(DType.FLOAT32, ()) for n in (inputs + " " + constants).split()}
    values: dict[str, Any] = {n: np.float32(0) for n in constants.split()}
    return Graph(tuple(nodes), tuple(inputs.split()), tuple(outputs.split()), values, types)


INNER = graph([node("i", "x", "t")], "", "t")

GOOD = {
    "in order": graph([node("a", "x", "m"), node("b", "m c", "y")], constants="c"),
    "any order": graph([node("b", "m", "y"), node("a", "x", "m")]),
    "outputs left out": graph([Node("a", UnboundOperator("", "Op", 1, {}), ("x", ""), ("y", ""))]),
    "no nodes": graph([], "x", "x c", "c"),
    "captures": graph([node("a", "x", "y", INNER)]),
    "captures of a later node": graph([node("a", "", "y", graph([node("i", "z", "t")], "", "t")), node("b", "x", "z")]),
    "hidden names": graph([node("a", "x", "t"), node("b", "t", "y", INNER)]),
    "nested": graph([node("a", "x", "y", graph([node("b", "x", "t", INNER)], "", "t"))]),
    "unsorted inside": graph([node("a", "x", "y", graph([node("i", "u", "t"), node("j", "x", "u")], "", "t"))]),
}


@pytest.mark.parametrize("name", GOOD)
def test_good(name: str) -> None:
    validate(GOOD[name])


BAD = {
    "no outputs": (graph([node("a", "x", "y")], outputs=""), "the graph has no outputs"),
    "undefined": (graph([node("a", "z", "y")]), r"node 'a' \(Op\) reads 'z', which nothing defines"),
    "undefined inside": (
        graph([node("a", "x", "y", graph([node("i", "z", "t")], "", "t"))]),
        r"node 'a' \(Op\), in node 'i' \(Op\) of its sub-graph, reads 'z'",
    ),
    "undefined output inside": (
        graph([node("a", "x", "y", graph([], "", "z"))]),
        r"node 'a' \(Op\), in its sub-graph's outputs, reads 'z'",
    ),
    "undefined output": (graph([node("a", "x", "m")]), "the graph output 'y' is not produced by any node"),
    "input twice": (graph([node("a", "x", "y")], "x x"), "'x' is a graph input already and is defined again as a graph input"),
    "input and constant": (graph([node("a", "x", "y")], "x", constants="x"), "'x' is a graph input already .* as a constant"),
    "writes an input": (graph([node("a", "x", "x y")]), r"node 'a' \(Op\) defines 'x', which is a graph input already"),
    "writes a constant": (graph([node("a", "x", "c y")], constants="c"), "defines 'c', which is a constant already"),
    "writes twice": (graph([node("a", "x", "y y")]), r"node 'a' \(Op\) defines 'y', which is an output of node 'a'"),
    "two writers": (graph([node("a", "x", "y"), node("b", "x", "y")]), r"node 'b' \(Op\) defines 'y', .* output of node 'a'"),
    "same node name": (graph([node("a", "x", "m"), node("a", "m", "y")]), "two nodes have the name 'a'"),
    "no node name": (graph([node("", "x", "y")]), "a node has no name"),
    "cycle": (graph([node("a", "x b", "a"), node("b", "a", "b y")]), r"cycle: 'b' \(Op\) -> 'a' \(Op\) -> 'b' \(Op\)"),
    "cycle by capture": (graph([node("a", "x", "y", graph([node("i", "y", "t")], "", "t"))]), r"cycle: 'a' \(Op\) -> 'a'"),
    "cycle inside": (
        graph([node("a", "x", "y", graph([node("i", "u", "t"), node("j", "t", "u")], "", "t"))]),
        r"in a sub-graph of node 'a' \(Op\): the graph has a cycle: 'j' \(Op\) -> 'i' \(Op\) -> 'j'",
    ),
    "twice inside": (
        graph([node("a", "x", "y", graph([node("i", "x", "t"), node("j", "x", "t")], "", "t"))]),
        r"in a sub-graph of node 'a' \(Op\): node 'j' \(Op\) defines 't'",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad(name: str) -> None:
    given, message = BAD[name]
    with pytest.raises(GraphError, match=message):
        validate(given)


def test_empty_names() -> None:
    a = node("a", "x", "y")
    for given in (Graph((a,), ("x", ""), ("y",)), Graph((a,), ("x",), ("y", "")), Graph((a,), ("x",), ("y",), {"": np.zeros(1)})):
        with pytest.raises(GraphError, match="has no name"):
            validate(given)


def test_names_in_messages_are_escaped() -> None:
    with pytest.raises(GraphError) as caught:
        validate(graph([node("a\x1b[2J", "z\nz", "y")]).replace(outputs=("n" * 10**6,)))
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 500
