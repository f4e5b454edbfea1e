"""Loops whose values stay in a device's memory: what is carried, swapped, passed on and stacked, and how they end."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dovetail import Core
from dovetail.device import current_budget
from dovetail.errors import OutOfMemory, TimeLimitExceeded
from dovetail.graph import DType, GraphBuilder
from dovetail.runtime import staged_iterations
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.scan import Scan
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.size import Size
from dovetail_ops_onnx.tanh import Tanh

A, B = np.float32([1, -2, 3]), np.float32([0.5, 4, -1])
HALF = np.float32(0.5)
STAGING = ["NUMPY", "ONEDNN"]
DEVICES = sorted({info.type for info in Core().devices})

Build = Callable[[GraphBuilder, str, str, str, str, str], tuple[list[str], str | None]]


def looped(device: str, build: Build, count: int | None = 4, given: int = 2, outputs: int = 2, **options: Any) -> list[Any]:
    """The results of a loop over two vectors x and y, whose body `build` makes of x, y, an outer vector and the iteration."""
    g = GraphBuilder()
    x, y, outer = (g.input(name, "float32", [3]) for name in ("x", "y", "outer"))
    limit = g.input("limit", "int64", [])
    b = GraphBuilder("body")
    number, condition = b.input("number", "int64", []), b.input("condition", "bool", [])
    values = [b.input(name, "float32", None) for name in ("a", "b")]
    results, proceeds = build(b, *values[:2], outer, number, condition)
    body = b.graph([b.node(Identity(), condition) if proceeds is None else proceeds, *results])
    ends = g.node(Loop(body=body), limit if count is not None else "", g.constant(np.array(True)), x, y, outputs=outputs)
    compiled = Core().compile_model(g.model([*ends]), device, options)
    feeds = {"x": A, "y": B, "outer": HALF * A, "limit": np.int64(count or 0)}
    first, second = (compiled(feeds) for _ in range(2))  # the second one with what the first left in memory
    for index in range(outputs):
        np.testing.assert_array_equal(first[index], second[index])
    return [first[index] for index in range(outputs)]


@pytest.mark.parametrize("device", DEVICES)
def test_values_that_change_places(device: str, staged: list[bool]) -> None:
    def build(b: GraphBuilder, x: str, y: str, outer: str, *_: str) -> tuple[list[str], None]:
        return [b.node(Add(), y, outer), b.node(Mul(), x, b.constant(HALF))], None

    x, y = A, B
    for _ in range(4):
        x, y = y + HALF * A, HALF * x
    np.testing.assert_array_equal(looped(device, build), [x, y])
    assert all(staged)  # on GPUs the host runs small bodies


@pytest.mark.parametrize("device", DEVICES)
def test_a_value_of_the_iteration_before_is_carried_on(device: str) -> None:
    """Nothing computes the second output, which is the first argument of the same iteration."""

    def build(b: GraphBuilder, x: str, y: str, outer: str, *_: str) -> tuple[list[str], None]:
        return [b.node(Add(), b.node(Mul(), x, outer), y), x], None

    x, y = A, B
    for _ in range(4):
        x, y = x * (HALF * A) + y, x
    np.testing.assert_allclose(looped(device, build), [x, y], rtol=1e-6)


@pytest.mark.parametrize("device", DEVICES)
def test_a_value_that_stays_and_one_that_is_an_outer_one(device: str) -> None:
    def build(b: GraphBuilder, x: str, y: str, outer: str, *_: str) -> tuple[list[str], None]:
        return [x, outer, b.node(Add(), x, y)], None

    x, y, sums = looped(device, build, outputs=3)
    np.testing.assert_array_equal([x, y], [A, HALF * A])
    np.testing.assert_array_equal(sums, [A + B, *[A + HALF * A] * 3])


@pytest.mark.parametrize("device", STAGING)
@pytest.mark.parametrize("rooms", ["one", "few", "all"])
@pytest.mark.parametrize("count", [1, 2, 7, 1 << 60])
def test_stacked_values(device: str, rooms: str, count: int, monkeypatch: pytest.MonkeyPatch, staged: list[bool]) -> None:
    """Numbers of iterations, and vectors, in arrays that grow; the condition ends the loop after 9 iterations."""
    if rooms != "all":
        monkeypatch.setattr(staged_iterations, "_AT_ONCE", 0)
        monkeypatch.setattr(staged_iterations, "_FIRST", 50 if rooms == "few" else 0)

    def build(b: GraphBuilder, x: str, y: str, outer: str, number: str, _: str) -> tuple[list[str], str]:
        proceeds = b.node(Less(), number, b.constant(np.int64(8)))
        return [b.node(Mul(), x, b.constant(HALF)), y, number, b.node(Add(), x, outer)], proceeds

    expected, x = [], A
    for _ in range(min(count, 9)):
        expected.append(x + HALF * A)
        x = x * HALF
    found = looped(device, build, count, outputs=4)
    np.testing.assert_array_equal(found[:2], [x, B])
    np.testing.assert_array_equal(found[2], range(min(count, 9)))
    np.testing.assert_array_equal(found[3], expected)
    assert found[2].base is None or found[2].base.nbytes == found[2].nbytes
    assert staged == [True] * 2 * (count > 1)


@pytest.mark.parametrize("device", STAGING)
def test_a_false_condition_of_the_first_iteration_ends_the_loop(device: str, staged: list[bool]) -> None:
    def build(b: GraphBuilder, x: str, y: str, outer: str, *_: str) -> tuple[list[str], str]:
        total = b.node(ReduceSum(keepdims=0), b.node(Mul(), x, x))
        return [b.node(Mul(), x, outer), y], b.node(Less(), total, b.constant(np.float32(0)))

    np.testing.assert_array_equal(looped(device, build, None), [A * (HALF * A), B])
    assert staged == [True, True]


@pytest.mark.parametrize("device", STAGING)
def test_a_type_that_changes_is_not_staged(device: str, staged: list[bool]) -> None:
    def build(b: GraphBuilder, x: str, y: str, outer: str, *_: str) -> tuple[list[str], None]:
        return [b.node(Concat(axis=0), x, outer), b.node(Tanh(), y)], None

    x, y = looped(device, build, 3)
    np.testing.assert_array_equal(x, np.concatenate([A, *[HALF * A] * 3]))
    np.testing.assert_allclose(y, np.tanh(np.tanh(np.tanh(B.astype(np.float64)))), rtol=1e-6)
    assert not any(staged)


@pytest.mark.parametrize("device", DEVICES)
def test_a_value_of_which_only_the_size_is_read_may_change_it(device: str) -> None:
    def build(b: GraphBuilder, x: str, y: str, outer: str, *_: str) -> tuple[list[str], None]:
        return [b.node(Concat(axis=0), outer, outer), b.node(Tanh(), y), b.node(Size(), x)], None

    x, y, sizes = looped(device, build, 4, outputs=3)
    np.testing.assert_array_equal(x, [*HALF * A, *HALF * A])
    np.testing.assert_allclose(y, np.tanh(np.tanh(np.tanh(np.tanh(B.astype(np.float64))))), rtol=1e-6)
    assert sizes.tolist() == [3, 6, 6, 6]


@pytest.mark.parametrize("device", DEVICES)
def test_a_shape_that_changes_is_seen_where_no_kernel_reads_the_value(device: str) -> None:
    def build(b: GraphBuilder, x: str, y: str, outer: str, *_: str) -> tuple[list[str], None]:
        return [b.node(Cast(to=DType.FLOAT32), b.node(Shape(), y)), b.node(Concat(axis=0), outer, outer)], None

    # The first value is the shape of the second one of the iteration before, which is 3 at first and 6 later.
    sizes, values = looped(device, build, count=3)
    np.testing.assert_array_equal(sizes, [6])
    np.testing.assert_array_equal(values, np.tile(HALF * A, 2))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_scans_along_axes_and_backwards(device: str, axis: int, rng: np.random.Generator, staged: list[bool]) -> None:
    g = GraphBuilder()
    start, x = g.input("start", "float32", [3]), g.input("x", "float32", [3, 5])
    b = GraphBuilder("body")
    state, column = b.input("state", "float32", None), b.input("column", "float32", None)
    total = b.node(Add(), state, column)
    body = b.graph([total, b.node(Mul(), total, column)])
    scan = Scan(
        body=body, num_scan_inputs=1, scan_input_axes=(1,), scan_input_directions=(1,), scan_output_axes=(axis,),
        scan_output_directions=(1,),
    )  # fmt: skip
    compiled = Core().compile_model(g.model([*g.node(scan, start, x, outputs=["end", "products"])]), device)
    values = rng.standard_normal((3, 5)).astype(np.float32)
    sums = A[:, None] + values[:, ::-1].astype(np.float64).cumsum(1)
    products = (sums * values[:, ::-1])[:, ::-1]
    found = compiled({"start": A, "x": values})
    np.testing.assert_allclose(found["end"], sums[:, -1], rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(found["products"], products.T if axis == 0 else products, rtol=1e-5, atol=1e-6)
    assert all(staged)  # on GPUs the host runs small bodies


def endless(b: GraphBuilder, x: str, y: str, *_: str) -> tuple[list[str], None]:
    return [b.node(Tanh(), x), b.node(Add(), x, y), b.node(Mul(), x, y)], None


@pytest.mark.parametrize("device", STAGING)
def test_limits_of_time_and_memory_end_the_loop(device: str, staged: list[bool], monkeypatch: pytest.MonkeyPatch) -> None:
    iterate = staged_iterations.StagedIterations.__call__

    def expiring(iterations: staged_iterations.StagedIterations) -> None:
        """An iteration, in which the time limit passes."""
        iterate(iterations)
        budget = current_budget()
        assert budget is not None
        budget.deadline = 0.0

    with monkeypatch.context() as patch:
        patch.setattr(staged_iterations.StagedIterations, "__call__", expiring)
        with pytest.raises(TimeLimitExceeded, match=r"node .*\(Loop\)|it is in a sub-graph of node .*\(Loop\)"):
            looped(device, endless, None, TIME_LIMIT=3600)
    with pytest.raises(OutOfMemory, match=r"node .*\(Loop\) holds values of .* bytes; the limit is 1,000,000"):
        looped(device, endless, None, outputs=3, MEMORY_LIMIT=1_000_000)
    assert staged == [True, True]


@pytest.mark.parametrize("device", STAGING)
@pytest.mark.parametrize("is_early", [True, False])
def test_outer_values_are_the_same_in_each_iteration(device: str, is_early: bool, staged: list[bool]) -> None:
    """Also where other values take the memory of one that is read early."""

    def build(b: GraphBuilder, x: str, y: str, outer: str, *_: str) -> tuple[list[str], None]:
        total = b.node(Mul(), x, outer) if is_early else x
        for _number in range(4):
            total = b.node(Concat(axis=0), b.node(ReduceSum(keepdims=1), total), b.node(Tanh(), y))
        last = b.node(ReduceSum(keepdims=1), total)
        return [b.node(Add(), last, y if is_early else outer), b.node(Tanh(), y)], None

    x, y, outer = A.astype(np.float64), B.astype(np.float64), (HALF * A).astype(np.float64)
    for _ in range(5):
        total = x * outer if is_early else x
        for _number in range(4):
            total = np.concatenate([total.sum(keepdims=True), np.tanh(y)])
        x, y = total.sum() + (y if is_early else outer), np.tanh(y)
    np.testing.assert_allclose(looped(device, build, 5), [x, y], rtol=1e-5)
    assert all(staged)
