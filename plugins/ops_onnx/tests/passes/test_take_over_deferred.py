"""Plans whose last part waits for data take over decisions too, for what comes before that and for what follows."""

import gc
import runpy
import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.errors import DataDependentShape
from dovetail.op import Operator, TensorType
from dovetail.planning.planner import Planner
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat_from_sequence import ConcatFromSequence
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.non_zero import NonZero
from dovetail_ops_onnx.range import Range
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.sequence_empty import SequenceEmpty
from dovetail_ops_onnx.sequence_insert import SequenceInsert
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.squeeze import Squeeze
from dovetail_ops_onnx.tanh import Tanh
from dovetail_ops_onnx.transpose import Transpose

numbers = runpy.run_path(str(Path(__file__).with_name("_taken_over.py")))["numbers"]

DEVICES = ["NUMPY", "ONEDNN"]

Feeds = Mapping[str, NDArray[Any]]


def size(g: dovetail.GraphBuilder, x: str, axis: int) -> str:
    return g.node(Squeeze(), g.node(Gather(), g.node(Shape(), x), g.constant(np.array([axis]))))


def plans(compiled: dovetail.CompiledModel) -> list[bool]:
    """For the latest plan, and those that follow it, whether they took over decisions."""
    found, plan = [], compiled._plans.latest
    while plan is not None:
        found.append("type_and_fold" not in {one.name for one in plan.report.passes})
        plan = plan.following
    return found


def taken(model: dovetail.Model, device: str, feeds: Sequence[Feeds]) -> list[list[bool]]:
    """`plans` after each run, after nodes and results were compared with those of a fresh session."""
    core, found = dovetail.Core(config=False), []
    compiled = core.compile_model(model, device)
    for one in feeds:
        fresh = core.compile_model(model, device)
        for here, wanted in zip(compiled(one).values(), fresh(one).values(), strict=True):
            assert np.array_equal(here, wanted)
        assert _nodes(compiled) == _nodes(fresh)
        found.append(plans(compiled))
    return found


def _nodes(compiled: dovetail.CompiledModel) -> list[Any]:
    nodes = compiled.report().nodes  # blocks of memory may be in another order
    return [(n.name, n.op, n.kernel, n.post_ops, n.device, [(one.name, one.type) for one in n.outputs]) for n in nodes]


def positive(g: dovetail.GraphBuilder, x: str) -> str:
    """The rows of x whose first number is positive."""
    first = g.node(Relu(), g.node(Gather(axis=1), x, g.constant(np.array(0))))
    return g.node(Squeeze(), g.node(NonZero(), first), g.constant(np.array([0])))


def chosen(g: dovetail.GraphBuilder, x: str) -> str:
    """The content of these rows."""
    return g.node(Gather(), x, positive(g, x))


def images(*shape: int) -> Feeds:
    """With some positive pixels in the first line."""
    x = numbers(*shape)
    x[:, :, 0, :3] = 1
    return {"x": x}


def detector(kind: type[Operator]) -> dovetail.Model:
    """Convolutions, rows chosen of their pixels by content, and a product of these beside numbers of all pixels.

    The numbers of all pixels are a constant of each size: folded with `Range`, or read from a `Shape`.
    """
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 4, "H", "W"])
    y = g.node(Relu(), g.node(Conv(pads=(1, 1, 1, 1)), x, g.constant(numbers(5, 4, 3, 3))))
    rows = g.node(Reshape(), g.node(Transpose(perm=(0, 2, 3, 1)), y), g.constant(np.array([-1, 5])))
    width = size(g, x, 3)
    if kind is Range:
        places = g.node(Range(), g.constant(np.int64(0)), size(g, rows, 0), g.constant(np.int64(1)))
        width = g.node(Reshape(), g.node(Gather(), places, positive(g, rows)), g.constant(np.array([-1, 1])))
    placed = g.node(Mul(), chosen(g, rows), g.node(Cast(to=dovetail.DType.FLOAT32), width))
    return g.model([g.node(Tanh(), g.node(MatMul(), placed, g.constant(numbers(5, 6)))), y])


@pytest.mark.parametrize("kind", [Shape, Range])
@pytest.mark.parametrize("device", DEVICES)
def test_before_and_behind_what_waits(device: str, kind: type[Operator]) -> None:
    feeds = [images(*shape) for shape in ((2, 4, 12, 14), (3, 4, 9, 16), (5, 4, 14, 11), (2, 4, 8, 9))]
    found = taken(detector(kind), device, feeds)
    assert [one[0] for one in found] == [False, True, True, True]
    assert [one[-1] for one in found] == [False, True, True, True]


@pytest.mark.parametrize("device", DEVICES)
def test_what_waits_twice(device: str) -> None:
    g = dovetail.GraphBuilder()
    x = g.input("x", "float32", ["N", 4])
    once = chosen(g, g.node(Tanh(), g.node(MatMul(), x, g.constant(numbers(4, 4)))))
    twice = chosen(g, g.node(MatMul(), once, g.constant(numbers(4, 7))))
    model = g.model([g.node(Relu(), g.node(MatMul(), twice, g.constant(numbers(7, 3))))])
    found = taken(model, device, [{"x": numbers(n, 4)} for n in (60, 41, 90)])
    assert [len(one) for one in found] == [3, 3, 3]
    assert [all(one) for one in found] == [False, True, True]


class Cut(Operator):
    """Long rows are cut where they are 0 first; the others are left as they are."""

    domain = "test"
    inputs, outputs = ("x: T",), ("y: T",)
    types = {"T": frozenset({dovetail.DType.FLOAT32})}

    def infer(self, x: TensorType) -> TensorType:
        if x.dims[-1] > 8:
            raise DataDependentShape("how long rows are")
        return x.with_shape(x.dims)

    def reference(self, x: NDArray[Any]) -> NDArray[Any]:
        return x if x.shape[-1] <= 8 else x[..., :9]


@pytest.mark.parametrize("device", DEVICES)
def test_sizes_by_which_nothing_waits(device: str) -> None:
    """Plans for either are taken over for more sizes like it."""
    g = dovetail.GraphBuilder()
    x = g.node(Relu(), g.input("x", "float32", ["N", "M"]))
    model = g.model([g.node(Tanh(), g.node(Cut(), x))])
    found = taken(model, device, [{"x": numbers(*shape)} for shape in ((4, 11), (5, 7), (6, 12), (7, 6), (3, 20))])
    assert [(len(one), one[0]) for one in found] == [(2, False), (1, False), (2, True), (1, True), (2, True)]


def looped(loops: int) -> dovetail.Model:
    """Some loops, each with a body of its own."""
    g = dovetail.GraphBuilder()
    x = g.node(Tanh(), g.input("x", "float32", ["N", 4]))
    for _ in range(loops):
        body = dovetail.GraphBuilder()
        body.input("i", "int64", [])
        going, state = body.input("going", "bool", []), body.input("state", "float32", None)
        state = body.node(Tanh(), body.node(MatMul(), state, body.constant(numbers(4, 4))))
        x = g.node(Loop(body=body.graph((going, state), "body")), g.constant(np.int64(2)), g.constant(np.array(True)), x)
    return g.model([g.node(Relu(), x)])


@pytest.mark.parametrize("device", DEVICES)
def test_many_bodies(device: str) -> None:
    """The plans of one graph do not take the places of another's."""
    core, model = dovetail.Core(config=False), looped(9)
    compiled = core.compile_model(model, device)
    for n in (5, 6, 9):
        x = numbers(n, 4)
        assert np.array_equal(compiled({"x": x})[0], core.compile_model(model, device)({"x": x})[0])
    assert all(plans(compiled))
    step = compiled._plans.latest.tail.steps[0]
    assert "type_and_fold" not in {one.name for one in step.bodies[0].plans.latest.report.passes}


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_no_tensor(device: str) -> None:
    g = dovetail.GraphBuilder()
    x = g.node(Tanh(), g.node(MatMul(), g.input("x", "float32", ["N", 4]), g.constant(numbers(4, 4))))
    pair = g.node(SequenceInsert(), g.node(SequenceInsert(), g.node(SequenceEmpty()), x), g.node(Relu(), x))
    model = g.model([g.node(Add(), g.node(ConcatFromSequence(axis=0), pair), g.constant(numbers(4)))])
    assert [one[0] for one in taken(model, device, [{"x": numbers(n, 4)} for n in (3, 5, 7)])] == [False, True, True]


def test_decisions_keep_no_constant_of_sizes_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not those that what follows read, where the plan before it was not taken over and is gone."""
    made: list[weakref.ref[Any]] = []
    plan = Planner.plan

    def watched(self: Planner, graph: dovetail.Graph, *given: Any) -> Any:
        made.extend(weakref.ref(a) for name, a in graph.constants.items() if a.size > 64 and name.startswith("range"))
        return plan(self, graph, *given)

    monkeypatch.setattr(Planner, "plan", watched)
    model = detector(Range)
    compiled = dovetail.Core(config=False).compile_model(model, "NUMPY", {"PLAN_CACHE": 1})
    for shape in ((2, 4, 12, 14), (2, 4, 1, 14), (2, 4, 14, 1), (3, 4, 9, 16)):
        compiled(images(*shape))
    gc.collect()
    alive = [one for one in made if one() is not None]
    assert made
    assert len(alive) <= 1
