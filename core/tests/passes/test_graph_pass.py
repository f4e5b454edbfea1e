"""Passes of plugins: what a wrong one does is an error that names it; those that need no shapes run once a model."""

import dataclasses
import re
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import InferError, OutOfMemory, PluginError, RunCancelled, TimeLimitExceeded, UsageError
from dovetail.graph import DType, Graph, Node, TensorType
from dovetail.hookspecs import hookimpl
from dovetail.passes import STAGES, GraphPass, PassContext
from dovetail.passes.pipeline import PASSES, pipeline
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.relu import Relu

Run = Callable[[Graph, PassContext], Any]


def core_with(toy_core: Any, *passes: GraphPass) -> dovetail.Core:
    """A session with one toy device and a plugin that gives these passes."""

    @hookimpl
    def dovetail_graph_passes(options: Any) -> tuple[GraphPass, ...]:
        return passes

    core, _ = toy_core(A=lambda node: False)
    plugin = SimpleNamespace(dovetail_api="1.0", dovetail_graph_passes=dovetail_graph_passes)
    core.plugins.register(plugin, name="acme-passes", kind="hooks", key="acme")
    return core


def model() -> dovetail.Model:
    """y = relu(-x), z = -x."""
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 3])
    z = g.node(Neg(), x, name="turn")
    return g.model([g.node(Relu(), z, name="rectify"), z])


def test_the_origin_is_filled_in_once_unless_the_plugin_gives_other_passes(toy_core: Any) -> None:
    """Options may change a plugin's passes; 40 of them take as long to copy as a small model to compile."""
    one, other = (GraphPass(name, "recognise", lambda graph, context: graph) for name in ("one", "other"))
    given = [one, other]

    @hookimpl
    def dovetail_graph_passes(options: Any) -> tuple[GraphPass, ...]:
        return tuple(given)

    core, _ = toy_core(A=lambda node: False)
    plugin = SimpleNamespace(dovetail_api="1.0", dovetail_graph_passes=dovetail_graph_passes)
    core.plugins.register(plugin, name="acme-passes", kind="hooks", key="acme")

    def found() -> list[GraphPass]:
        return [each for each in core.plugins.graph_passes({}) if each.origin == "acme-passes"]

    first = found()
    assert [each.name for each in first] == ["one", "other"]
    assert all(again is each for again, each in zip(found(), first, strict=True))
    for names in (["other"], ["other", "one"], []):
        given[:] = [{"one": one, "other": other}[name] for name in names]
        assert [each.name for each in found()] == names


def raising(graph: Graph, context: PassContext) -> Graph:
    raise KeyError("lost")


def nothing(graph: Graph, context: PassContext) -> None:
    return None


def fewer_outputs(graph: Graph, context: PassContext) -> Graph:
    return graph.replace(outputs=graph.outputs[:1])


def undefined(graph: Graph, context: PassContext) -> Graph:
    return graph.replace(nodes=graph.nodes[1:])


def renamed_input(graph: Graph, context: PassContext) -> Graph:
    return graph.replace(inputs=("other",), types={**graph.types, "other": graph.types["x"]})


def retyped(graph: Graph, context: PassContext) -> Graph:
    return graph.replace(types={**graph.types, graph.outputs[0]: TensorType(DType.FLOAT64, (2, 3))})


def badly_typed(graph: Graph, context: PassContext) -> Graph:
    x, (y, z) = graph.inputs[0], graph.outputs
    wide = Node("wide", Add(), (x, "w"), ("wide:0",))
    last = Node("last", Relu(), ("wide:0",), (y,))
    nodes = (Node("turn", Neg(), (x,), (z,)), wide, last)
    wrong = np.ones((5, 7), np.float32)
    types = {name: t for name, t in graph.types.items() if name in (x, z)} | {"w": TensorType.of(wrong, known=True)}
    return graph.replace(nodes=nodes, constants={"w": wrong}, types=types)


@pytest.mark.parametrize(
    ("run", "message"),
    [
        (raising, "raised KeyError: 'lost'"),
        (lambda graph, _: exit(3), "raised SystemExit: 3"),
        (nothing, "returned NoneType, not a Graph"),
        (fewer_outputs, "changed the outputs of the graph"),
        (undefined, "made a graph that is not valid"),
        (renamed_input, "changed the inputs of the graph"),
        (retyped, "changed the output"),
        (badly_typed, "made a graph that is not valid"),
        (lambda graph, _: graph.replace(constants={"c": [1.0]}), "made a graph that is not valid: the constant 'c' is a list"),
        (lambda graph, _: graph.replace(nodes=(7,)), "made a graph that is not valid: the nodes of the graph have 7"),
        (lambda graph, _: graph.replace(nodes=None), "made a graph that is not valid: the nodes of the graph are None"),
        (lambda graph, _: graph.replace(types={}), "made a graph that is not valid: the graph has no type for 'x'"),
    ],
)
def test_a_wrong_pass_is_named_with_how_to_leave_it_out(toy_core: Any, run: Run, message: str) -> None:
    core = core_with(toy_core, GraphPass("my_pass", "recognise", run))
    compiled = core.compile_model(model(), "A")
    x = np.float32([[1, -2, 3], [0, 5, -6]])
    with pytest.raises(PluginError, match=rf"graph pass 'my_pass' of acme-passes.* {re.escape(message)}") as caught:
        compiled({"x": x})
    assert "PASSES='-my_pass'" in caught.value.hint
    without = core.compile_model(model(), "A", {"PASSES": "-my_pass"})({"x": x})
    np.testing.assert_array_equal(without[0], np.maximum(-x, 0))
    np.testing.assert_array_equal(without[1], -x)


@pytest.mark.parametrize("stage", ["bind", "type", "quantize", "simplify", "place", "layout"])
def test_constants_of_a_pass_need_no_types(toy_core: Any, stage: Any) -> None:
    """New ones, and those with another content: a stale type would still know the old one."""

    def run(graph: Graph, context: PassContext) -> Graph:
        *rest, last = graph.nodes
        doubled = {name: 2 * array for name, array in graph.constants.items()}
        name = graph.free_name("one")
        if type(last.op) is not Add or not doubled:
            return graph
        nodes = (*rest, dataclasses.replace(last, outputs=("before",)), Node(name, Add(), ("before", name), last.outputs))
        return graph.replace(nodes=nodes, constants={**doubled, name: np.float32([1])})

    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", [2])
    given = g.model([g.node(Add(), x, g.constant(np.float32([10, 20])))])
    compiled = core_with(toy_core, GraphPass("my_pass", stage, run)).compile_model(given, "A")
    np.testing.assert_array_equal(compiled({"x": np.float32([0, 1])})[0], [21, 42])


def test_a_pass_may_refuse_what_the_user_asked_for(toy_core: Any) -> None:
    def refusing(graph: Graph, context: PassContext) -> Graph:
        raise UsageError("the state 'x' is read twice", hint="leave it out")

    compiled = core_with(toy_core, GraphPass("my_pass", "recognise", refusing)).compile_model(model(), "A")
    with pytest.raises(UsageError, match=r"^the state 'x' is read twice\n  leave it out$"):
        compiled({"x": np.ones((2, 3), np.float32)})


@pytest.mark.parametrize(
    "given", [MemoryError("Unable to allocate 9 MiB"), OutOfMemory("9 MiB"), TimeLimitExceeded("1 s"), RunCancelled("cancelled")]
)
def test_memory_time_and_cancellation_are_not_the_fault_of_a_pass(toy_core: Any, given: Exception) -> None:
    def limited(graph: Graph, context: PassContext) -> Graph:
        raise given

    compiled = core_with(toy_core, GraphPass("my_pass", "recognise", limited)).compile_model(model(), "A")
    with pytest.raises(InferError) as caught:
        compiled({"x": np.float32([[1, -2, 3], [0, 5, -6]])})
    if isinstance(given, MemoryError):
        assert type(caught.value) is OutOfMemory
        assert re.fullmatch("graph pass .my_pass. of acme-passes.*: Unable to allocate 9 MiB", caught.value.message)
    else:
        assert caught.value is given


def test_new_nodes_without_types_are_typed(toy_core: Any) -> None:
    def twice(graph: Graph, context: PassContext) -> Graph:
        y = graph.outputs[0]
        last = next(node for node in graph.nodes if node.outputs == (y,))
        inner = Node(last.name, last.op, last.inputs, ("inner",))
        others = tuple(node for node in graph.nodes if node is not last)
        types = {name: t for name, t in graph.types.items() if name != y}
        return graph.replace(nodes=(*others, inner, Node("again", Relu(), ("inner",), (y,))), types=types)

    core = core_with(toy_core, GraphPass("twice", "recognise", twice))
    compiled = core.compile_model(model(), "A")
    np.testing.assert_array_equal(compiled({"x": np.float32([[1, -2, 3]])})[0], [[0, 2, 0]])
    assert [node.name for node in compiled.report().nodes] == ["turn", "rectify", "again"]
    (row,) = (one for one in compiled.report().passes if one.name == "twice")
    assert (row.stage, row.origin, row.before, row.after) == ("recognise", "acme-passes", 2, 3)


def test_passes_that_need_no_shapes_run_once_a_model(toy_core: Any) -> None:
    runs: list[str] = []

    def noted(name: str) -> Run:
        return lambda graph, context: (runs.append(name), graph)[1]

    early = GraphPass("early", "bind", noted("early"), needs_shapes=False)
    core = core_with(toy_core, early, GraphPass("late", "recognise", noted("late")))
    compiled = core.compile_model(model(), "A")
    for rows in (1, 2, 3):
        compiled({"x": np.zeros((rows, 3), np.float32)})
    assert runs == ["early", "late", "late", "late"]
    for report in compiled.plans.values():
        assert [one.name for one in report.passes][:3] == ["unfuse_post_ops", "declare_opaque", "bind"]


def test_constants_are_folded_once_a_model(toy_core: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that reads constants alone is computed once, however many input shapes there are."""
    computed: list[int] = []
    reference = Neg.reference

    def counting(self: Neg, x: Any) -> Any:
        computed.append(x.size)
        return reference(self, x)

    monkeypatch.setattr(Neg, "reference", counting)
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 3])
    y = g.node(Add(), x, g.node(Neg(), g.constant(np.float32([1, 2, 3]))))
    core, _ = toy_core(A=lambda node: False)
    compiled = core.compile_model(g.model([y]), "A")
    for rows in (1, 2, 3):
        np.testing.assert_array_equal(compiled({"x": np.zeros((rows, 3), np.float32)})[0], [[-1, -2, -3]] * rows)
    assert computed == [3]


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(PluginError, match="is for the stage 'recognize'") as caught:
        GraphPass("mine", "recognize", lambda graph, context: graph)
    assert "recognise" in caught.value.hint


def test_the_pipeline_is_ordered_by_stage() -> None:
    mine = GraphPass("mine", "simplify", lambda graph, context: graph, origin="acme")
    order = [STAGES.index(one.stage) for one in pipeline([mine])]
    assert order == sorted(order)
    assert len(pipeline([mine])) == len(PASSES) + 2, "with fold_constants, which follows plugins' passes of its stage"
    names = [one.name for one in pipeline([mine])]
    assert len(set(names)) == len(names)
