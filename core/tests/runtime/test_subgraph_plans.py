"""Sub-graphs that did not run are in the report when they can be planned; plans for other shapes share those of sub-graphs."""

import numpy as np
import pytest

import dovetail
from dovetail import GraphBuilder, Model
from dovetail.graph import DType, Graph, TensorType
from dovetail.planning.planner import Planner
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.cos import Cos
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.range import Range
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.sin import Sin
from dovetail_ops_onnx.squeeze import Squeeze
from dovetail_ops_onnx.sub import Sub


def branch(op: Sin | Cos, outer: dict[str, TensorType], name: str) -> Graph:
    g = GraphBuilder(outer=outer)
    return g.graph([g.node(op, *outer, name=name)])


def model(state: tuple[int | None, int | None] = (3, 2)) -> Model:
    """A Loop over an If, whose branches read a value of the body."""
    body = GraphBuilder()
    body.input("i", "int64", ())
    same = body.node(Identity(), body.input("condition", "bool", ()), name="same")
    kept = body.node(Relu(), body.input("state", "float32", state), name="positive")
    outer = {kept: TensorType(DType.FLOAT32, state)}
    chosen = If(then_branch=branch(Sin(), outer, "wave"), else_branch=branch(Cos(), outer, "other"))
    early = body.node(Less(), "i", body.constant(np.array(9)), name="early")
    result = body.node(chosen, early, name="choose", outputs=("chosen",))
    inner = body.graph([same, result], "body")
    g = GraphBuilder()
    count, x = g.input("count", "int64", ()), g.input("x", "float32", (3, 2))
    return g.model([g.node(Loop(body=inner), count, "", x, name="loop")])


def paths(compiled: dovetail.CompiledModel) -> list[str]:
    return [node.path for node in compiled.report().nodes]


def test_sub_graphs_are_planned_for_declared_types() -> None:
    with dovetail.Core().compile_model(model(), "NUMPY") as compiled:
        assert paths(compiled) == ["loop"]
        assert compiled.plan_subgraphs() == {}
        assert set(paths(compiled)) == {
            "loop",
            "loop/body/early",
            "loop/body/positive",
            "loop/body/choose",
            "loop/body/choose/then_branch/wave",
            "loop/body/choose/else_branch/other",
        }
        wave = next(node for node in compiled.report().nodes if node.name == "wave")
        assert (wave.device, wave.inputs[0].type.shape) == ("NUMPY", (3, 2))


def test_what_did_not_run_is_added_to_what_did() -> None:
    with dovetail.Core().compile_model(model(), "NUMPY") as compiled:
        compiled({"count": np.array(1), "x": np.ones((3, 2), np.float32)})
        ran = paths(compiled)
        assert "loop/body/choose/then_branch/wave" in ran
        assert "loop/body/choose/else_branch/other" not in ran
        assert compiled.plan_subgraphs() == {}
        assert set(paths(compiled)) == {*ran, "loop/body/choose/else_branch/other"}


def test_open_types_are_reported() -> None:
    with dovetail.Core().compile_model(model((None, 2)), "NUMPY") as compiled:
        assert compiled.plan_subgraphs() == {"loop/body": "the types of its inputs are known when it runs"}
        assert paths(compiled) == ["loop"]


@pytest.mark.parametrize("count", [0, 2])
def test_plans_ahead_change_no_result(count: int) -> None:
    x = np.random.default_rng(1).standard_normal((3, 2)).astype(np.float32)
    want = x
    for _ in range(count):
        want = np.sin(np.maximum(want, 0))
    with dovetail.Core().compile_model(model(), "NUMPY") as compiled:
        compiled.plan_subgraphs()
        np.testing.assert_allclose(compiled({"count": np.array(count), "x": x})[0], want, rtol=1e-6)


def sized(read: str) -> Model:
    """An If whose branches read a constant that planning makes of the size of the input: its `rows`, or a number for `each`."""
    outer = {"x": TensorType(DType.FLOAT32, (None, 2)), read: TensorType(DType.INT64, (None,))}

    def chosen(op: Add | Sub) -> Graph:
        g = GraphBuilder(outer=outer)
        return g.graph([g.node(op, "x", g.node(Cast(to=DType.FLOAT32), g.node(ReduceSum(keepdims=False), read)))])

    g = GraphBuilder()
    x, condition = g.input("x", "float32", (None, 2)), g.input("condition", "bool", ())
    rows = g.node(Shape(start=0, end=1), x, outputs=("rows",))
    g.node(Range(), g.constant(np.int64(0)), g.node(Squeeze(), rows), g.constant(np.int64(1)), outputs=("each",))
    return g.model([g.node(If(then_branch=chosen(Add()), else_branch=chosen(Sub())), condition)])


@pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])
@pytest.mark.parametrize("read", ["rows", "each"])
def test_sub_graphs_are_planned_again_where_constants_have_other_contents(device: str, read: str) -> None:
    """Few elements and many: small constants are compared, large ones by identity."""
    with dovetail.Core().compile_model(sized(read), device) as compiled:
        for rows in (3, 4, 100, 3, 101, 100, 1):
            x = np.random.default_rng(rows).standard_normal((rows, 2)).astype(np.float32)
            for condition in (True, False):
                found = next(iter(compiled({"x": x, "condition": np.array(condition)}).values()))
                number = np.float32(rows if read == "rows" else sum(range(rows)))
                np.testing.assert_array_equal(found, x + number if condition else x - number)


def test_plans_for_other_shapes_share_sub_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """The branches are prepared once, and planned for the shapes that they are given, whatever those of the model."""
    prepared, planned = [], []
    prepare, plan = Planner.prepare, Planner.plan
    monkeypatch.setattr(Planner, "prepare", lambda self, graph, notes=None: prepared.append(graph) or prepare(self, graph, notes))
    monkeypatch.setattr(Planner, "plan", lambda self, graph, *rest: planned.append(graph) or plan(self, graph, *rest))
    outer = {"x": TensorType(DType.FLOAT32, (None, 2))}
    g = GraphBuilder()
    g.input("x", "float32", (None, 2))
    condition, other = g.input("condition", "bool", ()), g.input("other", "float32", (None,))
    chosen = If(then_branch=branch(Sin(), outer, "wave"), else_branch=branch(Cos(), outer, "other"))
    outputs = [g.node(chosen, condition), g.node(Relu(), other)]
    with dovetail.Core().compile_model(g.model(outputs), "NUMPY") as compiled:
        for rows, size in ((3, 1), (4, 2), (3, 3), (4, 4)):
            x = np.full((rows, 2), 0.5, np.float32)
            results = [*compiled({"x": x, "condition": np.array(True), "other": -np.ones(size, np.float32)}).values()]
            np.testing.assert_allclose(results[0], np.sin(x), rtol=1e-6)
            np.testing.assert_array_equal(results[1], np.zeros(size))
    assert len(prepared) == 3  # the model and its branches
    assert len(planned) == 4 + 2
