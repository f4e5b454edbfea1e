"""Bodies of loops that hold further sub-graphs, whose values stay in a device's memory: If, loops in loops, nodes after them."""

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import pytest

from dovetail import Core
from dovetail.errors import DovetailError, OperatorError, TimeLimitExceeded
from dovetail.graph import Graph, GraphBuilder
from dovetail.op import FLOATS, Operator, RunGraph, TensorType, TypesOf
from dovetail.runtime import control_node
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.equal import Equal
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.if_ import If
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.mod import Mod
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.tanh import Tanh

A, OUTER = np.float32([1, -2, 3]), np.float32([0.5, 4, -1])
HALF = np.float32(0.5)
STAGING = ["NUMPY", "ONEDNN"]
DEVICES = sorted({info.type for info in Core().devices})

Make = Callable[[GraphBuilder], list[str]]
Build = Callable[[GraphBuilder, str, str, str], list[str]]


def looped(device: str, build: Build, count: int = 5, outputs: int = 1, **options: Any) -> list[list[Any]]:
    """The results of two runs, with x and 2 x, of a loop whose body `build` makes of x, an outer vector and the iteration."""
    g = GraphBuilder()
    x, outer = (g.input(name, "float32", [3]) for name in ("x", "outer"))
    b = GraphBuilder("body")
    number, condition, value = b.input("number", "int64", []), b.input("condition", "bool", []), b.input("a", "float32", None)
    body = b.graph([b.node(Identity(), condition), *build(b, value, outer, number)])
    ends = g.node(Loop(body=body), g.constant(np.int64(count)), g.constant(np.array(True)), x, outputs=outputs)
    compiled = Core().compile_model(g.model([ends] if outputs == 1 else [*ends]), device, options)
    runs = [compiled({"x": k * A, "outer": k * OUTER}) for k in np.float32([1, 2, 1])]
    for index in range(outputs):
        np.testing.assert_array_equal(runs[0][index], runs[2][index])
    return [[run[index] for index in range(outputs)] for run in runs[:2]]


def is_odd(b: GraphBuilder, number: str) -> str:
    return str(b.node(Equal(), b.node(Mod(), number, b.constant(np.int64(2))), b.constant(np.int64(1))))


def branch(name: str, make: Make) -> Graph:
    b = GraphBuilder(name)
    return b.graph(make(b))


def either(b: GraphBuilder, cond: str, yes: Make, no: Make) -> Any:
    branches = {"then_branch": branch("yes", yes), "else_branch": branch("no", no)}
    count = len(branches["then_branch"].outputs)
    return b.node(If(**branches), cond, **({} if count == 1 else {"outputs": count}))


def expected(step: Callable[[np.ndarray, np.ndarray, int], np.ndarray], k: float, count: int = 5) -> np.ndarray:
    x, outer = k * A.astype(np.float64), k * OUTER.astype(np.float64)
    for number in range(count):
        x = step(x, outer, number)
    return x


@pytest.mark.parametrize("device", DEVICES)
def test_branches_and_nodes_before_between_and_after_them(device: str, staged: list[bool]) -> None:
    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        odd = is_odd(b, number)
        scaled = b.node(Mul(), x, b.constant(HALF))
        first = either(b, odd, lambda c: [c.node(Add(), scaled, outer)], lambda c: [c.node(Tanh(), x)])
        between = b.node(Sub(), first, x)
        second = either(b, odd, lambda c: [c.node(Identity(), outer)], lambda c: [c.node(Mul(), between, between)])
        return [b.node(Add(), second, b.node(Mul(), first, b.constant(HALF)))]

    def step(x: np.ndarray, outer: np.ndarray, number: int) -> np.ndarray:
        first = x / 2 + outer if number % 2 else np.tanh(x)
        return (outer if number % 2 else (first - x) ** 2) + first / 2

    one, two = looped(device, build)
    np.testing.assert_allclose(one[0], expected(step, 1), rtol=1e-4)
    np.testing.assert_allclose(two[0], expected(step, 2), rtol=1e-4)
    if device in STAGING:
        assert staged == [True] * 3


@pytest.mark.parametrize("device", DEVICES)
def test_values_that_branches_pass_on_and_stack(device: str, staged: list[bool]) -> None:
    """The value of the iteration before, an outer one, and one that both branches read, to stack and to carry."""

    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        both = either(
            b, is_odd(b, number),
            lambda c: [c.node(Identity(), x), c.node(Add(), x, outer)],
            lambda c: [c.node(Add(), x, outer), c.node(Identity(), x)],
        )  # fmt: skip
        return [*both, number]

    for k, (last, seconds, numbers) in zip((1, 2), looped(device, build, outputs=3), strict=True):
        x, rows = k * A, []
        for number in range(5):
            x, second = (x, x + k * OUTER) if number % 2 else (x + k * OUTER, x)
            rows.append(second)
        np.testing.assert_array_equal(last, x)
        np.testing.assert_array_equal(seconds, rows)
        np.testing.assert_array_equal(numbers, range(5))
    if device in STAGING:
        assert staged == [True] * 3


@pytest.mark.parametrize("device", DEVICES)
def test_a_loop_in_a_branch_of_a_loop(device: str) -> None:
    def inner(c: GraphBuilder, x: str, outer: str) -> str:
        b = GraphBuilder("inner")
        b.input("i", "int64", [])
        condition, value = b.input("c", "bool", []), b.input("v", "float32", None)
        body = b.graph([b.node(Identity(), condition), b.node(Add(), b.node(Mul(), value, b.constant(HALF)), outer)])
        return str(c.node(Loop(body=body), c.constant(np.int64(3)), c.constant(np.array(True)), x))

    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        cond = is_odd(b, number)
        return [b.node(Tanh(), either(b, cond, lambda c: [inner(c, x, outer)], lambda c: [c.node(Mul(), x, outer)]))]

    def step(x: np.ndarray, outer: np.ndarray, number: int) -> np.ndarray:
        for _ in range(3 * (number % 2)):
            x = x / 2 + outer
        return np.tanh(x if number % 2 else x * outer)

    one, two = looped(device, build)
    np.testing.assert_allclose(one[0], expected(step, 1), rtol=1e-4)
    np.testing.assert_allclose(two[0], expected(step, 2), rtol=1e-4)


@pytest.mark.parametrize("device", STAGING)
def test_branches_of_different_types_are_not_staged(device: str, staged: list[bool]) -> None:
    """So is one whose result depends on data."""

    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        ends = either(b, is_odd(b, number), lambda c: [c.node(Concat(axis=0), x, outer)], lambda c: [c.node(Identity(), x)])
        return [b.node(Add(), x, b.node(ReduceSum(keepdims=1), ends))]

    def step(x: np.ndarray, outer: np.ndarray, number: int) -> np.ndarray:
        return x + x.sum() + outer.sum() * (number % 2)

    one, two = looped(device, build)
    np.testing.assert_allclose(one[0], expected(step, 1), rtol=1e-5)
    np.testing.assert_allclose(two[0], expected(step, 2), rtol=1e-5)
    assert staged == [False] * 3


@pytest.mark.parametrize("device", STAGING)
def test_a_branch_that_never_runs_may_be_wrong(device: str) -> None:
    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        never = b.node(Equal(), number, b.constant(np.int64(-1)))
        shape = np.array([7])
        return [either(b, never, lambda c: [c.node(Reshape(), x, c.constant(shape))], lambda c: [c.node(Add(), x, outer)])]

    np.testing.assert_allclose(looped(device, build)[0][0], A + 5 * OUTER, rtol=1e-6)


@pytest.mark.parametrize("device", STAGING)
def test_errors_of_branches_name_their_node(device: str, staged: list[bool]) -> None:
    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        def row(c: GraphBuilder) -> list[str]:
            return [c.node(Add(), x, c.node(Gather(axis=0), outer, number))]

        return [either(b, is_odd(b, number), row, lambda c: [c.node(Tanh(), x)])]

    with pytest.raises(DovetailError, match=r"Gather.*3"):
        looped(device, build)
    assert staged == [True]


@pytest.mark.parametrize("device", STAGING)
def test_a_time_limit_ends_a_branch(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    run = control_node.StagedNode.run

    def late(self: control_node.StagedNode) -> None:
        assert control_node.RUNNING.budget is not None
        control_node.RUNNING.budget.deadline = 0.0
        run(self)

    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        return [either(b, is_odd(b, number), lambda c: [c.node(Add(), x, outer)], lambda c: [c.node(Tanh(), x)])]

    monkeypatch.setattr(control_node.StagedNode, "run", late)
    with pytest.raises(TimeLimitExceeded, match=r"\(If\)"):
        looped(device, build, TIME_LIMIT=3600)


class Twice(Operator):
    """x and the body's result of two runs, the first of which may be looked at after the second; or what `odd` makes of them."""

    domain = "test.staged"
    inputs = ("X: T",)
    outputs = ("A: T", "B: T")
    types: ClassVar[Any] = {"T": FLOATS}
    body: Graph
    odd: bool = False

    def control_types(self, types: TypesOf, *inputs: TensorType | None) -> list[TensorType | None]:
        (found,) = types(self.body, ())
        return [found, found]

    def control(self, run: RunGraph, x: Any) -> Any:
        (first,) = run(self.body, ())
        kept = first.copy()
        (second,) = run(self.body, ())
        np.testing.assert_array_equal(first, kept)
        return (first, second[:2] if self.odd else second + x)


def twice(odd: bool) -> Build:
    def build(b: GraphBuilder, x: str, outer: str, _: str) -> list[str]:
        c = GraphBuilder("body2")
        body = c.graph([c.node(Add(), x, outer)])
        one, two = b.node(Twice(body=body, odd=odd), x, outputs=2)
        return [b.node(Sub(), two, one)]

    return build


@pytest.mark.parametrize("device", STAGING)
def test_results_outlive_the_next_run_of_their_graph(device: str, staged: list[bool]) -> None:
    assert [one[0].tolist() for one in looped(device, twice(False))] == [A.tolist(), (2 * A).tolist()]
    assert staged == [True] * 3


@pytest.mark.parametrize("device", STAGING)
def test_an_operator_that_gives_other_types_than_it_declares(device: str) -> None:
    with pytest.raises(OperatorError, match=r"Twice.*control\(\) gave float32\[2\], control_types\(\) float32\[3\]"):
        looped(device, twice(True))


@pytest.mark.parametrize("device", STAGING)
def test_one_of_two_outputs_of_branches_and_a_run_after_an_error(device: str, staged: list[bool]) -> None:
    """Of the branches the second result has no name; that a row is missing ends one run and changes nothing in the next."""
    g = GraphBuilder()
    x, outer, count = g.input("x", "float32", [3]), g.input("outer", "float32", [3]), g.input("count", "int64", [])
    b = GraphBuilder("body")
    number, condition, value = b.input("number", "int64", []), b.input("condition", "bool", []), b.input("a", "float32", None)
    yes = branch("yes", lambda c: [c.node(Add(), value, c.node(Gather(axis=0), outer, number)), c.node(Tanh(), value)])
    no = branch("no", lambda c: [c.node(Mul(), value, outer), c.node(Identity(), value)])
    first, _ = b.node(If(then_branch=yes, else_branch=no), is_odd(b, number), outputs=("first", ""))
    body = b.graph([b.node(Identity(), condition), first])
    end = g.node(Loop(body=body), count, g.constant(np.array(True)), x, outputs=1)
    compiled = Core().compile_model(g.model([end]), device)
    for times in (3, 4, 2, 3):
        arrays = {"x": A, "outer": OUTER, "count": np.array(times)}
        if times == 4:
            with pytest.raises(DovetailError, match=r"Gather.*3"):
                compiled(arrays)
            continue
        wanted = A.astype(np.float64)
        for i in range(times):
            wanted = wanted + OUTER[i] if i % 2 else wanted * OUTER
        np.testing.assert_allclose(compiled(arrays)[0], wanted, rtol=1e-5)
    assert staged == [True] * 4


@pytest.mark.parametrize("device", STAGING)
def test_a_condition_of_several_elements_is_refused_in_an_iteration(device: str) -> None:
    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        several = b.node(Equal(), x, outer)
        return [either(b, several, lambda c: [c.node(Add(), x, outer)], lambda c: [c.node(Tanh(), x)])]

    with pytest.raises(OperatorError, match=r"\(If\).*cond has 3 elements"):
        looped(device, build)


class Chosen(Operator):
    """The results of the body; without `honest` control_types says something else."""

    domain = "test.staged"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types: ClassVar[Any] = {"T": FLOATS}
    body: Graph
    honest: bool = True

    def control_types(self, types: TypesOf, *inputs: TensorType | None) -> list[TensorType | None]:
        (found,) = types(self.body, ())
        return [found if self.honest or found is None else found.with_shape((2,))]

    def control(self, run: RunGraph, x: Any) -> Any:
        return tuple(run(self.body, ())) if x[0] < 0 else (x,)

    def chosen_graph(self, inputs: Any) -> Graph | None:
        return self.body if inputs[0] is not None and inputs[0][0] < 0 else None


@pytest.mark.parametrize("device", STAGING)
def test_a_graph_that_is_chosen_in_some_iterations(device: str, staged: list[bool]) -> None:
    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        body = branch("chosen", lambda c: [c.node(Mul(), x, outer)])
        return [b.node(Sub(), b.node(Chosen(body=body), x), outer)]

    def step(x: np.ndarray, outer: np.ndarray, number: int) -> np.ndarray:
        return (x * outer if x[0] < 0 else x) - outer

    one, two = looped(device, build)
    np.testing.assert_allclose(one[0], expected(step, 1), rtol=1e-5)
    np.testing.assert_allclose(two[0], expected(step, 2), rtol=1e-5)
    assert staged == [True] * 3


@pytest.mark.parametrize("device", STAGING)
def test_a_chosen_graph_of_other_types_than_declared(device: str) -> None:
    def build(b: GraphBuilder, x: str, outer: str, number: str) -> list[str]:
        body = branch("chosen", lambda c: [c.node(Mul(), x, outer)])
        b.node(Chosen(body=body, honest=False), b.node(Sub(), x, b.constant(np.float32([9, 9, 9]))), outputs=("wrong",))
        return [b.node(Add(), x, b.node(ReduceSum(keepdims=1), "wrong"))]

    with pytest.raises(OperatorError, match=r"Chosen.*gave float32\[3\], control_types\(\) float32\[2\]"):
        looped(device, build)


class Pressed(Operator):
    """The input; at the call of number `at` somebody presses Ctrl-C."""

    domain = "test.staged"
    inputs = ("X: T",)
    outputs = ("Y: T",)
    types: ClassVar[Any] = {"T": FLOATS}
    calls: ClassVar[int] = 0
    at: ClassVar[int] = 0

    def infer(self, x: TensorType) -> TensorType:
        return x.with_shape(x.dims)

    def reference(self, x: np.ndarray) -> np.ndarray:
        Pressed.calls += 1
        if Pressed.calls == Pressed.at:
            raise KeyboardInterrupt
        return x


def test_an_interrupt_in_a_branch_ends_the_run_and_leaves_the_next_one_alone(staged: list[bool]) -> None:
    g = GraphBuilder()
    x, outer = (g.input(name, "float32", [3]) for name in ("x", "outer"))
    b = GraphBuilder("body")
    number, condition, value = b.input("number", "int64", []), b.input("condition", "bool", []), b.input("a", "float32", None)
    first = either(
        b, is_odd(b, number),
        lambda c: [c.node(Pressed(), c.node(Add(), value, outer))],
        lambda c: [c.node(Mul(), value, outer)],
    )  # fmt: skip
    body = b.graph([b.node(Identity(), condition), first])
    end = g.node(Loop(body=body), g.constant(np.int64(5)), g.constant(np.array(True)), x, outputs=1)
    compiled = Core().compile_model(g.model([end]), "NUMPY")
    wanted = expected(lambda x, outer, number: x + outer if number % 2 else x * outer, 1)
    for at in (2, 0, 2, 0):
        Pressed.calls, Pressed.at = 0, at
        if at:
            with pytest.raises(KeyboardInterrupt):
                compiled({"x": 2 * A, "outer": OUTER})
        else:
            np.testing.assert_allclose(compiled({"x": A, "outer": OUTER})[0], wanted, rtol=1e-5)
    assert staged == [True] * 4
