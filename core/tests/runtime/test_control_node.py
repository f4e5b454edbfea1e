"""Nodes with sub-graphs on the host: types are checked once while they stay, and bodies take whatever an operator gives them."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

import numpy as np
import pytest

from dovetail import Core
from dovetail.errors import OperatorError
from dovetail.graph import Graph, GraphBuilder
from dovetail.graph.graph import Node
from dovetail.op import FLOATS, Operator, RunGraph, TensorType
from dovetail.planning.plan import Body, HostStep
from dovetail.runtime.control_node import ControlNode, RunBody
from dovetail.runtime.plan_request import PlanRequest, Runner
from dovetail_ops_onnx.greater import Greater
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum

NONE = Graph((), (), ())


class Twice(Operator):
    """Runs its body twice."""

    domain = "test.control"
    inputs = ("X: T", "B?")
    types: ClassVar[Any] = {"T": FLOATS}
    checks: ClassVar[list[Sequence[TensorType | None]]] = []

    @classmethod
    def check(cls, inputs: Sequence[TensorType | None], outputs: int) -> None:
        cls.checks.append(inputs)
        super().check(inputs, outputs)

    def control(self, run: RunGraph, x: Any, b: Any) -> Any:
        assert b is None
        return tuple(run(NONE, run(NONE, (x,))))


def control_node(op: Operator, body: RunBody, made: Callable[[Sequence[Any]], object] = list) -> ControlNode:
    class Runs:
        def body(self, _: Node, captured: Sequence[Any]) -> RunBody:
            made(captured)
            return body

        def iterations(self, *_: Any) -> None:
            return None

    step = HostStep(Node("twice", op, ("x",), ("y",)), (0,), (2,), (Body(NONE, cast(Any, None), (1,), cast(Any, None)),), 1 << 20)
    return ControlNode(step, [Runs()])


def test_types_are_checked_when_they_change() -> None:
    Twice.checks.clear()
    node = control_node(Twice(), lambda given: [2 * given[0]])
    for x in (np.float32([1, 2]), np.float32([3, 4]), np.float32([5]), np.float64([5]), np.float64([6])):
        np.testing.assert_array_equal(node([x, None])[0], 4 * x)
    assert [str(one[0]) for one in Twice.checks] == ["float32[2]", "float32[1]", "float64[1]"]
    for _ in range(2):  # again and again
        with pytest.raises(OperatorError, match=r"node 'twice' .*input 'X' is int64"):
            node([np.array([1]), None])


def test_a_body_is_made_once_in_each_run_with_what_it_reads_then() -> None:
    made: list[Sequence[Any]] = []
    node = control_node(Twice(), lambda given: [*given], made.append)
    for value in (7, 8):
        node([np.float32([1]), value])
    assert made == [[7], [8]]


def test_a_branch_that_does_not_run_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [2])
    positive = g.node(Greater(), g.node(ReduceSum(keepdims=0), x), g.constant(np.float32(0)))
    branches = {}
    for number, name in enumerate(("then_branch", "else_branch")):
        b = GraphBuilder(name)
        branches[name] = b.graph([b.node(Mul(), x, b.constant(np.float32(number + 2)))])
    request = Core().compile_model(g.model([g.node(If(**branches), positive)]), "NUMPY").create_infer_request()
    made: list[int] = []
    body = Runner.body
    monkeypatch.setattr(Runner, "body", lambda self, *given: made.append(id(self)) or body(self, *given))
    results = [request.infer(np.float32([sign, sign]))[0].tolist() for sign in (1, -1, 1)]
    assert results == [[2, 2], [-3, -3], [2, 2]]
    assert len(made) == 3
    assert made[0] == made[2] != made[1]


class Given(Operator):
    """Runs its body with arguments of several kinds, the same ones twice."""

    domain = "test.control"
    inputs = ("X", "Y")
    outputs = ("outputs*",)
    body: Graph

    def control(self, run: RunGraph, x: Any, _: Any) -> Any:
        rows = np.ascontiguousarray(x)
        kinds = [rows, rows.T, rows[:, 0], rows.T, rows, rows[0, 0], np.asfortranarray(rows), rows[::-1], rows]
        return tuple(run(self.body, (one,))[0] for one in kinds for _ in range(2))


@pytest.mark.parametrize("device", sorted({info.type for info in Core().devices}))
def test_a_body_takes_arguments_of_any_kind_and_order(
    device: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [3, 3])
    y = g.input("y", "float32", [3])
    b = GraphBuilder("body")
    body = b.graph([b.node(Mul(), b.input("given", "float32", None), y)])
    names = [f"y{number}" for number in range(18)]
    model = g.model([g.node(Identity(), name) for name in g.node(Given(body=body), x, y, outputs=names)])
    given, other = rng.standard_normal((3, 3)).astype(np.float32), rng.standard_normal(3).astype(np.float32)
    advance, are_contiguous = PlanRequest._advance, []

    def looked_at(self: PlanRequest, values: Sequence[Any], calls: Any = ()) -> Sequence[Any]:
        are_contiguous.append(all(isinstance(v, np.ndarray) and v.flags.c_contiguous for v in values))
        return advance(self, values, calls)

    monkeypatch.setattr(PlanRequest, "_advance", looked_at)
    found = Core().compile_model(model, device)({"x": given, "y": other})
    assert len(are_contiguous) >= 18
    assert all(are_contiguous)
    kinds = [given, given.T, given[:, 0], given.T, given, given[0, 0], given, given[::-1], given]
    for number, one in enumerate(kinds):
        for index in (2 * number, 2 * number + 1):
            np.testing.assert_allclose(found[index], one * other, rtol=1e-6)


def test_new_arrays_of_a_device_are_not_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    g = GraphBuilder()
    x = g.input("x", "float32", [4])
    b = GraphBuilder("body")
    b.input("i", "int64", [])
    condition, state = b.input("c", "bool", []), b.input("s", "float32", [4])
    body = b.graph([b.node(Identity(), condition), b.node(Mul(), state, state)])
    loop = g.node(Loop(body=body), g.constant(np.int64(3)), g.constant(np.array(True)), x)
    request = Core().compile_model(g.model([loop]), "NUMPY").create_infer_request()
    request.infer(np.float32([1, 2, 3, 4]))
    advance, is_fresh = PlanRequest._advance, False
    given: list[Any] = []
    found: list[Any] = []

    def copied(self: PlanRequest, values: Sequence[Any], calls: Any = ()) -> Sequence[Any]:
        results = advance(self, values, calls)
        if self._inner:
            self.fresh = is_fresh
            results = [v.copy() for v in results]
            given.append(values[2])
            found.append(results[1])
        return results

    monkeypatch.setattr(PlanRequest, "_advance", copied)
    monkeypatch.setattr(PlanRequest, "layout", lambda *_: None)  # else nothing leaves the device
    for is_fresh in (False, True):
        given.clear()
        found.clear()
        np.testing.assert_array_equal(request.infer(np.float32([1, 2, 3, 4]))[0], np.float32([1, 2, 3, 4]) ** 8)
        assert [a is b for a, b in zip(found, given[1:], strict=False)] == [is_fresh] * 2


class Reports(Operator):
    """The outputs for which the node has a name, as numbers."""

    domain = "test.control"
    inputs = ("X: T", "B?")
    outputs = ("Y: T", "Steps?: T", "Count?: T")
    types: ClassVar[Any] = {"T": FLOATS}

    def control(self, run: RunGraph, x: Any, _: Any) -> Any:
        return (np.float32(run.wanted),)


def test_outputs_that_are_left_out_at_the_end_are_not_wanted() -> None:
    node = control_node(Reports(), lambda given: [given[0]])
    np.testing.assert_array_equal(node([np.float32([1]), None])[0], [1, 0, 0])
