"""Scheduling: the order of nodes, stages, cycles and undefined values."""

import random

import pytest

from dovetail.errors import GraphError
from dovetail.graph import DType, Graph, Node, TensorType
from dovetail.graph.schedule import schedule, stages
from dovetail.op import Operator


class Any2(Operator):
    domain = "test"
    inputs = ("inputs*",)
    outputs = ("Y",)


def graph(edges: dict[str, list[str]], inputs: tuple[str, ...] = ("x",), outputs: tuple[str, ...] = ()) -> Graph:
    """One node for each value: `{"y": ["x"]}` is a node y that reads x and writes y."""
    nodes = tuple(Node(name, Any2(), tuple(reads), (name,)) for name, reads in edges.items())
    return Graph(nodes, inputs, outputs, {}, {n: TensorType(DType.FLOAT32, ()) for n in inputs})


def names(nodes: tuple[Node, ...]) -> list[str]:
    return [n.name for n in nodes]


def test_a_graph_in_order_is_kept_as_it_is() -> None:
    g = graph({"b": ["x"], "a": ["x"], "c": ["a", "b"]}, outputs=("c",))
    assert schedule(g) is g


def test_layers_in_any_order_are_sorted() -> None:
    g = graph({"out": ["pool"], "pool": ["conv"], "conv": ["x"]}, outputs=("out",))
    assert names(schedule(g).nodes) == ["conv", "pool", "out"]


def test_stages_peel_roots() -> None:
    g = graph({"d": ["b", "c"], "c": ["x"], "b": ["x"], "e": ["d", "x"], "f": ["x"]})
    assert [names(s) for s in stages(g)] == [["c", "b", "f"], ["d"], ["e"]]


def test_every_order_of_the_same_nodes_gives_a_valid_schedule() -> None:
    edges = {f"n{i}": [f"n{j}" for j in range(i) if (i * 7 + j * 3) % 4 == 0] or ["x"] for i in range(40)}
    for seed in range(20):
        items = list(edges.items())
        random.Random(seed).shuffle(items)
        known = {"x"}
        for node in schedule(graph(dict(items))).nodes:
            assert known.issuperset(node.reads)
            known.update(node.writes)
        assert len(known) == 41


def test_a_cycle_names_its_nodes_and_no_others() -> None:
    g = graph({"before": ["x"], "a": ["before", "c"], "b": ["a"], "c": ["b"], "after": ["c"]})
    with pytest.raises(GraphError, match=r"cycle") as caught:
        schedule(g)
    message = str(caught.value)
    assert all(f"'{name}'" in message for name in "abc")
    assert "before" not in message
    assert "after" not in message


def test_a_self_loop_is_a_cycle() -> None:
    with pytest.raises(GraphError, match=r"cycle: 'a'.* -> 'a'"):
        schedule(graph({"a": ["x", "a"]}))


def test_a_long_cycle_is_shortened_in_the_message() -> None:
    edges = {f"n{i}": [f"n{(i - 1) % 1000}"] for i in range(1000)}
    with pytest.raises(GraphError, match=r"\(1000 nodes\)") as caught:
        schedule(graph(edges))
    assert len(str(caught.value)) < 1000


def test_an_undefined_input_names_node_and_value() -> None:
    with pytest.raises(GraphError, match=r"'b'.*'nowhere'"):
        schedule(graph({"a": ["x"], "b": ["nowhere"]}))


def test_an_output_that_nothing_produces() -> None:
    with pytest.raises(GraphError, match=r"'missing' is not produced"):
        schedule(graph({"a": ["x"]}, outputs=("missing",)))


def test_a_long_chain_needs_no_recursion() -> None:
    edges = {f"n{i}": [f"n{i - 1}"] if i else ["x"] for i in reversed(range(100_000))}
    assert names(schedule(graph(edges)).nodes)[:3] == ["n0", "n1", "n2"]
