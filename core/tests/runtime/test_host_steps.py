"""Steps on the host one after another: shapes that return are looked up once for all, and rare cases are as for one node."""

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import pytest

from dovetail import Core
from dovetail.devices.work_budget import WorkBudget
from dovetail.errors import OperatorError, TimeLimitExceeded
from dovetail.graph import GraphBuilder
from dovetail.graph.graph import Node
from dovetail.op import FLOATS, Operator, TensorType
from dovetail.planning.plan import HostStep, Source
from dovetail.runtime import host_steps
from dovetail.runtime.host_node import HostNode
from dovetail.runtime.host_steps import HostSteps
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.non_zero import NonZero
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.tanh import Tanh

X = np.float32([0.5, -1])


def steps_of(inputs: int, *nodes: tuple[Operator, tuple[Source, ...]]) -> HostSteps:
    """Nodes of one result each, in slots from `inputs` on."""
    steps = [
        HostStep(Node(f"node{n}", op, tuple(f"x{i}" for i in range(len(reads))), ("y",)), reads, (inputs + n,), (), 1 << 20)
        for n, (op, reads) in enumerate(nodes)
    ]
    return HostSteps(steps, [[] for _ in steps], inputs, None)


def run(steps: HostSteps, *inputs: Any, count: int = 2) -> list[Any]:
    slots = [*inputs, *[None] * count]
    steps(slots)
    return slots[len(inputs) :]


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The nodes that were called one by one."""
    found: list[str] = []
    call = HostNode.__call__

    def noted(self: HostNode, slots: Sequence[Any]) -> list[Any]:
        found.append(self._step.node.name)
        return call(self, slots)

    monkeypatch.setattr(HostNode, "__call__", noted)
    return found


def test_shapes_that_return_are_looked_up_once(called: list[str]) -> None:
    steps = steps_of(2, (Concat(axis=0), (0, 1)), (Tanh(), (2,)))
    for count in (1, 2, 3, 1, 2, 3):
        grown = np.tile(X, count)
        y, z = run(steps, grown, X)
        np.testing.assert_array_equal(y, [*grown, *X])
        np.testing.assert_allclose(z, np.tanh(y), rtol=1e-6)
    assert called == ["node0", "node1"] * 3
    with pytest.raises(OperatorError, match="node0"):  # other shapes are checked
        run(steps, X[None], X)


def test_nodes_after_one_that_depends_on_data_are_called_one_by_one(called: list[str]) -> None:
    steps = steps_of(1, (Tanh(), (0,)), (NonZero(), (1,)), (Identity(), (2,)))
    for x in (X, 0 * X, X):
        assert run(steps, x, count=3)[2].shape == (1, np.count_nonzero(x))
    assert called == ["node0", *["node1", "node2"] * 3]


class Odd(Operator):
    """x, for a while."""

    domain = "test.steps"
    inputs = ("X: T",)
    types: ClassVar[Any] = {"T": FLOATS}
    act: ClassVar[Callable[[np.ndarray], Any]]

    def infer(self, x: TensorType) -> TensorType:
        return x

    def reference(self, x: np.ndarray) -> Any:
        return type(self).act(x)


def fails(_: np.ndarray) -> None:
    raise ValueError("not today")


@pytest.mark.parametrize(("act", "text"), [(fails, "not today"), (lambda x: x[:1], r"float32\[1\]"), (lambda x: x > 0, "bool")])
def test_mistakes_of_operators_name_the_node(act: Callable[[np.ndarray], Any], text: str, called: list[str]) -> None:
    steps = steps_of(1, (Tanh(), (0,)), (Odd(), (1,)))
    Odd.act = staticmethod(lambda x: x + 1)
    for _ in range(2):
        np.testing.assert_array_equal(run(steps, X)[1], np.tanh(X) + 1)
    Odd.act = staticmethod(act)
    with pytest.raises(OperatorError, match=rf"node 'node1' \(test.steps.*Odd\).*{text}|node 'node1' \(Odd\).*{text}"):
        run(steps, X)
    Odd.act = staticmethod(lambda x: x - 1)
    np.testing.assert_array_equal(run(steps, X)[1], np.tanh(X) - 1)


def test_nodes_that_take_long_and_runs_with_a_limit_of_time_are_called_one_by_one(
    called: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = steps_of(1, (Tanh(), (0,)), (Tanh(), (1,)))
    run(steps, X)
    monkeypatch.setattr(host_steps, "_LONG", 0.0)
    run(steps, X)
    assert called == ["node0", "node1"]  # the time of the run before counts
    run(steps, X)
    assert called == ["node0", "node1"] * 2
    with WorkBudget(3600) as budget:
        run(steps, X)
        assert called == ["node0", "node1"] * 3
        budget.deadline = 0.0
        with pytest.raises(TimeLimitExceeded, match="node0"):
            run(steps, X)


@pytest.mark.parametrize("device", sorted({info.type for info in Core().devices}))
def test_a_loop_that_grows_in_each_of_several_runs(device: str) -> None:
    """Numbers of rows return, from other beginnings too, and with other sizes of what is read from outside."""
    g = GraphBuilder()
    x, outer, limit = g.input("x", "float32", [None, 2]), g.input("outer", "float32", [None, 2]), g.input("limit", "int64", [])
    b = GraphBuilder("body")
    b.input("i", "int64", [])
    condition, value = b.input("c", "bool", []), b.input("v", "float32", None)
    total = b.node(ReduceSum(keepdims=1), b.node(Add(), b.node(Tanh(), value), outer), b.constant(np.array([0])))
    body = b.graph([b.node(Identity(), condition), b.node(Concat(axis=0), value, total)])
    compiled = Core().compile_model(g.model([g.node(Loop(body=body), limit, g.constant(np.array(True)), x)]), device)
    request = compiled.create_infer_request()
    for rows, count in ((1, 12), (3, 12), (1, 12), (2, 5)):
        given, one = np.float32([[0.5, -1]] * rows), np.float32([[0.25, 2]])
        found = request.infer({"x": given, "outer": one, "limit": np.int64(count)})[0]
        expected = given.astype(np.float64)
        for _ in range(count):
            expected = np.concatenate([expected, (np.tanh(expected) + one).sum(0, keepdims=True)])
        np.testing.assert_allclose(found, expected, rtol=1e-4)
