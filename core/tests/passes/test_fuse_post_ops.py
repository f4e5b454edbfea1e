"""Fusion: which consumers a node takes over, in which order, and what stops it."""

from collections.abc import Sequence

import numpy as np
import pytest

from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail.graph import Binary, Eltwise, Graph, GraphBuilder
from dovetail.passes.constant_folding import fold_constants
from dovetail.passes.fuse_post_ops import Fused, fuse_post_ops
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.split import Split
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.tanh import Tanh


def accept(node: TypedNode) -> Accepted | Refusal:
    return Accepted("toy")


def conv(g: GraphBuilder, x: str, name: str) -> str:
    y: str = g.node(Conv(), x, g.constant(np.ones((2, 2, 1, 1)), "float32"), name=name)
    return y


def start() -> tuple[GraphBuilder, str]:
    g = GraphBuilder()
    return g, g.input("x", "float32", [1, 2, 3, 3])


def fused(g: GraphBuilder, *outputs: str) -> Fused:
    return fuse_post_ops(fold_constants(g.graph(outputs)), accept)


def names(graph: Graph) -> list[str]:
    return [n.name for n in graph.nodes]


def test_a_chain_is_taken_over_in_order() -> None:
    g, x = start()
    y = g.node(Tanh(), g.node(Relu(), conv(g, x, "c")))
    (node,) = fused(g, y).graph.nodes
    assert [p.algorithm for p in node.post_ops if isinstance(p, Eltwise)] == ["relu", "tanh"]
    assert node.outputs == (y,)
    assert node.origins == ("c", "relu", "tanh")


def test_outputs_that_are_left_out_stay_in_their_places() -> None:
    """Split has as many as its node."""
    g, x = start()
    g.node(Split(axis=1, num_outputs=2), x, outputs=["part", ""])
    (node,) = fused(g, g.node(Relu(), "part", outputs=["y"])).graph.nodes
    assert node.outputs == ("y", "")


def test_a_node_is_asked_once_which_post_ops_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the device merges none of a long chain, and the chain of each node is tried."""
    asked, post_ops = [], Relu.post_ops
    monkeypatch.setattr(Relu, "post_ops", lambda *given: asked.append(given[2]) or post_ops(*given))
    g, y = start()
    for _ in range(40):
        y = g.node(Relu(), y)
    graph = fold_constants(g.graph([y]))
    refused = fuse_post_ops(graph, lambda _: Refusal(Reason.POST_OP, "none"))
    assert refused.graph.nodes == graph.nodes
    assert len(refused.stops) == len(asked) == 39


def test_a_residual_goes_to_the_later_convolution() -> None:
    g, x = start()
    a, b = conv(g, x, "a"), conv(g, x, "b")
    result = fused(g, g.node(Relu(), g.node(Add(), a, b)))
    first, second = result.graph.nodes
    assert (first.name, first.post_ops) == ("a", ())
    assert second.post_ops == (Binary("add", a), Eltwise("relu"))


def test_the_device_is_asked_once_about_producers_that_are_alike() -> None:
    """Whether the second operand of a sum takes it over is one question, unless slopes differ."""
    questions: list[tuple[type, ...]] = []

    def counted(node: TypedNode) -> Accepted | Refusal:
        questions.append((type(node.op), *map(type, node.post_ops)))
        return Accepted("toy")

    def asked(slopes: Sequence[float]) -> int:
        g, x = start()
        ends = [g.node(Add(), g.node(Tanh(), x), g.node(LeakyRelu(alpha=slope), x)) for slope in slopes]
        questions.clear()
        fuse_post_ops(fold_constants(g.graph(ends)), counted)
        return questions.count((LeakyRelu, Binary))

    # Those after the first are of the nodes as they run.
    assert asked([0.5, 0.5, 0.5]) == 1 + 3
    assert asked([0.5, 0.25, 0.125]) == 3 + 3


@pytest.mark.parametrize("shape", [[1, 2, 3, 3], [1, 2, 1, 1]])
def test_an_answer_about_another_operand_is_not_taken(shape: list[int]) -> None:
    """The device refuses one of two producers that differ in the content of a constant alone."""
    g, x = start()
    values = [g.constant(np.full(shape, n), "float32") for n in (1, 2)]

    def picky(node: TypedNode) -> Accepted | Refusal:
        content = [t.value.flat[0] for t in node.inputs if t is not None and t.value is not None]
        return Refusal(Reason.POST_OP, "no") if node.post_ops and content == [2] else Accepted("toy")

    ends = [g.node(Add(), g.node(Tanh(), x), g.node(Mul(), x, value)) for value in values]
    result = fuse_post_ops(fold_constants(g.graph(ends)), picky)
    assert [(n.op.op_type, len(n.post_ops)) for n in result.graph.nodes] == [("Tanh", 0), ("Mul", 1), ("Mul", 0), ("Tanh", 1)]


def test_an_operand_that_was_merged_into_an_earlier_node_exists_before_the_later_one() -> None:
    """A gate: its activation is a node behind the other product, and runs with the product before."""
    g, x = start()
    gate, up = conv(g, x, "gate"), conv(g, x, "up")
    active = g.node(Relu(), gate)
    result = fused(g, g.node(Mul(), active, up))
    assert result.stops == {}
    assert [(n.name, n.post_ops) for n in result.graph.nodes] == [("gate", (Eltwise("relu"),)), ("up", (Binary("mul", active),))]


@pytest.mark.parametrize(("chained_first", "algorithm"), [(True, "sub"), (False, "rsub")])
def test_the_side_of_a_subtraction_counts(chained_first: bool, algorithm: str) -> None:
    g, x = start()
    a = conv(g, x, "a")
    y = g.node(Sub(), *((a, x) if chained_first else (x, a)))
    assert fused(g, y).graph.nodes[0].post_ops == (Binary(algorithm, "x"),)


def test_a_value_with_two_readers_stays() -> None:
    g, x = start()
    a = conv(g, x, "a")
    assert names(fused(g, g.node(Relu(), a), g.node(Tanh(), a)).graph) == ["a", "relu", "tanh"]


def test_a_value_that_is_an_output_stays() -> None:
    g, x = start()
    a = conv(g, x, "a")
    graph = fold_constants(g.graph([a, g.node(Relu(), a)]))
    assert fuse_post_ops(graph, accept).graph is graph


def test_a_result_that_grows_by_broadcasting_stays() -> None:
    g, x = start()
    wide = g.input("wide", "float32", [4, 2, 3, 3])
    assert names(fused(g, g.node(Add(), conv(g, x, "a"), wide)).graph) == ["a", "add"]


def test_a_square_is_no_chain_over_one_side() -> None:
    g, x = start()
    a = conv(g, x, "a")
    assert names(fused(g, g.node(Mul(), a, a)).graph) == ["a", "mul"]


def test_the_device_stops_the_chain_and_the_reason_is_kept() -> None:
    g, x = start()
    y = g.node(Tanh(), g.node(Relu(), conv(g, x, "c")))
    no = Refusal(Reason.POST_OP, "no tanh here")

    def picky(node: TypedNode) -> Accepted | Refusal:
        return no if any(isinstance(p, Eltwise) and p.algorithm == "tanh" for p in node.post_ops) else Accepted("toy")

    result = fuse_post_ops(fold_constants(g.graph([y])), picky)
    assert names(result.graph) == ["c", "tanh"]
    assert result.stops == {"c": ("tanh", no)}


def test_a_chain_that_is_accepted_whole_is_one_question() -> None:
    g, x = start()
    y = g.node(Tanh(), g.node(Tanh(), g.node(Relu(), conv(g, x, "c"))))
    asked: list[int] = []

    def counting(node: TypedNode) -> Accepted | Refusal:
        asked.append(len(node.post_ops))
        return Accepted("toy")

    (node,) = fuse_post_ops(fold_constants(g.graph([y])), counting).graph.nodes
    assert (len(node.post_ops), asked) == (3, [3])


@pytest.mark.parametrize("most", [0, 1, 2])
def test_a_chain_that_is_refused_grows_as_far_as_it_goes(most: int) -> None:
    g, x = start()
    y = g.node(Tanh(), g.node(Relu(), g.node(Tanh(), conv(g, x, "c"), name="t"), name="r"), name="u")
    no = Refusal(Reason.POST_OP, f"at most {most}")
    asked: list[int] = []

    def picky(node: TypedNode) -> Accepted | Refusal:
        if node.name != "c":
            return no
        asked.append(len(node.post_ops))
        return Accepted("toy") if len(node.post_ops) <= most else no

    result = fuse_post_ops(fold_constants(g.graph([y])), picky)
    assert (result.graph.nodes[0].name, len(result.graph.nodes[0].post_ops)) == ("c", most)
    assert result.stops["c"] == (("t", "r", "u")[most], no)
    assert asked == [3, 1, 2][: 1 + min(most + 1, 2)]


@pytest.mark.parametrize("most", [0, 1, 15, 30, 31])
def test_a_long_chain_that_is_refused_takes_six_questions(most: int) -> None:
    g, x = start()
    y = conv(g, x, "c")
    for i in range(32):
        y = g.node(Relu(), y, name=f"r{i}")
    asked: list[int] = []

    def picky(node: TypedNode) -> Accepted | Refusal:
        if node.name == "c":
            asked.append(len(node.post_ops))
        return Accepted("toy") if len(node.post_ops) <= most else Refusal(Reason.POST_OP, f"{len(node.post_ops)}")

    result = fuse_post_ops(fold_constants(g.graph([y])), picky)
    assert len(result.graph.nodes[0].post_ops) == most
    assert result.stops["c"] == (f"r{most}", Refusal(Reason.POST_OP, f"{most + 1}"))
    assert len(asked) == 6, asked


def test_at_most_32_post_ops() -> None:
    g, x = start()
    y = conv(g, x, "c")
    for _ in range(40):
        y = g.node(Relu(), y)
    graph = fused(g, y).graph
    assert [len(n.post_ops) for n in graph.nodes] == [32, 7]


def test_an_operand_that_comes_later_is_a_reason() -> None:
    """Unless the node went into the other side of the addition."""
    g, x = start()
    a = conv(g, x, "a")
    late = g.node(Tanh(), g.node(Mul(), x, x, name="m"), name="t")
    total = g.node(Add(), a, late, name="plus")
    stays = fused(g, total)
    assert stays.stops == {}, "the sum goes into the chain of m"
    g, x = start()
    b, late = conv(g, x, "b"), g.node(Tanh(), conv(g, x, "c"), name="t")
    graph = fold_constants(g.graph([g.node(Add(), b, late, name="other")]))
    one = fuse_post_ops(graph, lambda node: accept(node) if len(node.post_ops) < 2 else Refusal(Reason.POST_OP, "two"))
    assert one.stops["b"] == ("other", Refusal(Reason.POST_OP, f"the operand '{late}' is computed later than the node"))


def test_a_node_waits_for_an_operand_that_others_read_too() -> None:
    """A residual addition whose sum goes on: the node that computes its other side cannot take it over."""
    g, x = start()
    b, read_twice = conv(g, x, "b"), conv(g, x, "c")
    result = fused(g, g.node(Add(), b, read_twice, name="other"), read_twice)
    assert result.stops == {}
    assert [(n.name, n.post_ops) for n in result.graph.nodes] == [("c", ()), ("b", (Binary("add", read_twice),))]


def test_a_node_waits_for_an_operand_whose_node_takes_no_post_ops() -> None:
    """A step of a recurrence: the state times a number, plus a slice of the input, which is copied later."""
    g, x = start()
    state, late = g.node(Mul(), x, x, name="m"), conv(g, x, "c")
    graph = fold_constants(g.graph([g.node(Add(), state, late, name="plus")]))
    result = fuse_post_ops(graph, lambda node: Refusal(Reason.POST_OP, "none") if node.name == "c" else accept(node))
    assert result.stops == {}
    assert [(n.name, n.post_ops) for n in result.graph.nodes] == [("c", ()), ("m", (Binary("add", late),))]


def test_a_chain_of_more_than_32_is_a_reason() -> None:
    g, x = start()
    y = conv(g, x, "c")
    for i in range(33):
        y = g.node(Relu(), y, name=f"r{i}")
    result = fused(g, y)
    assert [len(n.post_ops) for n in result.graph.nodes] == [32, 0]
    assert result.stops == {"c": ("r32", Refusal(Reason.POST_OP, "a chain holds at most 32 post-ops"))}


def test_an_operand_is_there_where_the_chain_that_computes_it_begins() -> None:
    """A gate: the product of one convolution's activation with another one, whose node comes before the activation's."""
    g, x = start()
    a, b = conv(g, x, "a"), conv(g, x, "b")
    gate = g.node(Tanh(), a, name="t")
    graph = fused(g, g.node(Mul(), gate, b, name="m")).graph
    assert [(n.name, len(n.post_ops)) for n in graph.nodes] == [("a", 1), ("b", 1)]


def test_a_node_waits_for_an_operand_that_no_other_node_could_add() -> None:
    """As the time embedding of a diffusion model, which is added to all pixels: the operand is smaller than the sum."""
    g, x = start()
    a = conv(g, x, "a")
    pooled = g.node(Tanh(), g.input("p", "float32", [1, 2, 1, 1]), name="t")
    product = g.node(Mul(), pooled, g.node(Conv(), pooled, g.constant(np.ones((2, 2, 1, 1)), "float32"), name="small"), name="m")
    total = g.node(Relu(), g.node(Add(), a, product, name="plus"))
    result = fused(g, g.node(Tanh(), total, name="last"), g.node(Relu(), product, name="other")).graph
    assert names(result) == ["t", "small", "a", "other"]
    node = result.nodes[2]
    assert [p.algorithm for p in node.post_ops if isinstance(p, Binary | Eltwise)] == ["add", "relu", "tanh"]
    assert [p.operand for p in node.post_ops if isinstance(p, Binary)] == [product]


def test_a_node_stays_where_the_device_takes_nothing_that_it_would_wait_for() -> None:
    g, x = start()
    a = conv(g, x, "a")
    late = g.node(Tanh(), g.input("p", "float32", [1, 2, 1, 1]), name="t")
    total = g.node(Add(), g.node(Relu(), a, name="r"), late, name="plus")
    graph = fold_constants(g.graph([total]))
    found = fuse_post_ops(graph, lambda node: Refusal(Reason.POST_OP, "no") if len(node.node.post_ops) > 1 else Accepted("toy"))
    assert names(found.graph) == ["a", "t", "plus"]
    assert [len(node.post_ops) for node in found.graph.nodes] == [1, 0, 0]
