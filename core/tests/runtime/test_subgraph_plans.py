"""Sub-graphs that did not run are in the report when they can be planned."""

import numpy as np
import pytest

import dovetail
from dovetail import GraphBuilder, Model
from dovetail.graph import Graph
from dovetail_ops_onnx.cos import Cos
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.sin import Sin


def branch(op: Sin | Cos, reads: str, name: str) -> Graph:
    g = GraphBuilder()
    return g.graph([g.node(op, reads, name=name)])


def model(state: tuple[int | None, int | None] = (3, 2)) -> Model:
    """A Loop over an If, whose branches read a value of the body."""
    body = GraphBuilder()
    body.input("i", "int64", ())
    condition = body.node(Identity(), body.input("condition", "bool", ()), name="same")
    kept = body.node(Relu(), body.input("state", "float32", state), name="positive")
    chosen = If(then_branch=branch(Sin(), kept, "wave"), else_branch=branch(Cos(), kept, "other"))
    result = body.node(chosen, condition, name="choose", outputs=("chosen",))
    inner = body.graph([condition, result], "body")
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
