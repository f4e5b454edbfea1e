"""Partition: every node once, in an order that works, for any graph and any assignment."""

import random

from dovetail.graph import Graph, GraphBuilder
from dovetail.op import Operator
from dovetail.passes.constant_folding import fold_constants
from dovetail.planning.partition import partition


class Step(Operator):
    domain = "test"
    inputs = ("inputs*",)
    outputs = ("Y",)


def random_graph(seed: int) -> Graph:
    choose = random.Random(seed)
    g = GraphBuilder()
    values = [g.input("x", "float32", [2])]
    for _ in range(choose.randint(1, 25)):
        values.append(g.node(Step(), *choose.sample(values, k=min(len(values), choose.randint(1, 3)))))
    return fold_constants(g.graph([values[-1], choose.choice(values[1:])]))


def test_parts_hold_every_node_once_in_a_valid_order() -> None:
    for seed in range(200):
        graph = random_graph(seed)
        choose = random.Random(seed)
        device_of = {n.name: choose.choice("AB") for n in graph.nodes}
        parts = partition(graph, device_of)
        assert sorted(n.name for p in parts for n in p.graph.nodes) == sorted(n.name for n in graph.nodes)
        ready = {"x"}
        for part in parts:
            assert all(device_of[n.name] == part.device for n in part.graph.nodes)
            assert ready.issuperset(part.graph.inputs)
            ready.update(part.graph.outputs)
        assert ready.issuperset(graph.outputs)


def test_one_device_is_one_part() -> None:
    graph = random_graph(3)
    (part,) = partition(graph, dict.fromkeys((n.name for n in graph.nodes), "A"))
    assert len(part.graph.nodes) == len(graph.nodes)
    assert part.graph.inputs == ("x",)


def test_a_detour_does_not_make_parts_depend_on_each_other() -> None:
    # a(A) -> b(B) -> c(A), and a -> c: one part for A would need itself through B.
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    a = g.node(Step(), x, name="a")
    b = g.node(Step(), a, name="b")
    c = g.node(Step(), a, b, name="c")
    parts = partition(fold_constants(g.graph([c])), {"a": "A", "b": "B", "c": "A"})
    assert [(p.device, [n.name for n in p.graph.nodes]) for p in parts] == [("A", ["a"]), ("B", ["b"]), ("A", ["c"])]
