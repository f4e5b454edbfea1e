"""Small models that are given many sizes: after some plans the first run of a further size is one by references."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.graph import DType, Model
from dovetail.passes.constant_folding import type_and_fold
from dovetail.planning.deferred import typed_inputs
from dovetail.planning.first_runs import FirstRuns
from dovetail.planning.plan import Plan, Signature
from dovetail.planning.report import PlanReport
from dovetail.runtime import infer_request
from dovetail.runtime.plan_request import PlanRequest
from dovetail_ops_onnx.gru import GRU
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.relu import Relu
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.softmax import Softmax

RNG = np.random.default_rng(17)
SIZE = 5
FIRST, SECOND = (RNG.standard_normal((SIZE, SIZE)).astype(np.float32) for _ in range(2))
PLANNED = (3, 9, 1, 7, 20, 2, 6, 4)
"""Sizes that are planned: as many as there are plans before others run by references."""

_devices = pytest.mark.parametrize("device", ["NUMPY", "ONEDNN"])


def model_of(graph: Callable[[dovetail.GraphBuilder], list[str]]) -> Model:
    g = dovetail.GraphBuilder()
    return g.model(graph(g))


def perceptron(g: dovetail.GraphBuilder) -> list[str]:
    x = g.input("x", "float32", ["N", SIZE])
    x = g.node(Relu(), g.node(MatMul(), x, g.constant(FIRST)))
    return [g.node(Softmax(axis=-1), g.node(MatMul(), x, g.constant(SECOND))), g.node(Reshape(), x, g.constant(np.array([-1])))]


def rows(count: int) -> NDArray[np.float32]:
    return RNG.standard_normal((count, SIZE)).astype(np.float32)


def check(results: Any, x: NDArray[Any]) -> None:
    hidden = np.maximum(x.astype(np.float64) @ FIRST, 0)
    scores = hidden @ SECOND
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    np.testing.assert_allclose(results[0], weights / weights.sum(axis=-1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(results[1], hidden.reshape(-1), rtol=1e-5, atol=1e-6)


def planned(device: str, **properties: Any) -> tuple[dovetail.CompiledModel, dovetail.InferRequest]:
    """The perceptron, and a request that has run with all of `PLANNED`."""
    compiled = dovetail.Core(config=False).compile_model(model_of(perceptron), device, properties)
    request = compiled.create_infer_request()
    for size in PLANNED:
        x = rows(size)
        check(request.infer({"x": x}), x)
    return compiled, request


def sizes_of(compiled: dovetail.CompiledModel) -> set[int]:
    return {shapes[0][0] for shapes in compiled.plans}


@_devices
def test_a_size_is_planned_when_it_returns(device: str) -> None:
    compiled, request = planned(device)
    for size, after in ((8, set()), (11, set()), (0, set()), (8, {8}), (11, {8, 11})):
        x = rows(size)
        check(request.infer({"x": x}), x)
        assert sizes_of(compiled) == {*PLANNED, *after}


@_devices
def test_a_size_that_is_repeated_at_once_is_planned(device: str) -> None:
    compiled, request = planned(device)
    x = rows(13)
    check(request.infer({"x": x}), x)
    assert 13 not in sizes_of(compiled)
    check(request.infer({"x": x}), x)
    assert 13 in sizes_of(compiled)


@_devices
def test_results_outlive_the_next_run(device: str) -> None:
    _, request = planned(device)
    x, other = rows(10), rows(12)
    first = request.infer({"x": x})
    request.infer({"x": other})
    check(first, x)


def test_a_report_of_a_size_plans_it() -> None:
    compiled, _ = planned("ONEDNN")
    report = compiled.report({"x": (8, SIZE)})
    assert {node.device for node in report.nodes} == {"ONEDNN"}
    assert 8 in sizes_of(compiled)


def test_without_fallback_no_node_runs_on_the_host() -> None:
    compiled, request = planned("ONEDNN", FALLBACK=False)
    request.infer({"x": rows(8)})
    assert 8 in sizes_of(compiled)


def test_sizes_that_grow_are_planned() -> None:
    compiled, request = planned("ONEDNN")
    for size in range(30, 45):
        request.infer({"x": rows(size)})
    assert {*range(40, 45)} <= sizes_of(compiled)


def test_the_request_of_the_last_size_rests_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Plan] = []

    class Counted(PlanRequest):
        def __init__(self, plan: Plan, **given: Any) -> None:
            made.append(plan)
            super().__init__(plan, **given)

    monkeypatch.setattr(infer_request, "PlanRequest", Counted)
    _, request = planned("ONEDNN")
    for size in (10, PLANNED[-1], 11, PLANNED[-1], 12, PLANNED[-1]):
        x = rows(size)
        check(request.infer({"x": x}), x)
    assert len(made) == len(PLANNED) + 1


def test_recurrences_and_halves_have_plans_of_their_own() -> None:
    def recurrent(g: dovetail.GraphBuilder) -> list[str]:
        x = g.input("x", "float32", ["T", 1, SIZE])
        w, r = (g.constant(RNG.standard_normal((1, 3 * SIZE, SIZE)).astype(np.float32)) for _ in range(2))
        return [g.node(GRU(hidden_size=SIZE), x, w, r, outputs=1)]

    def halves(g: dovetail.GraphBuilder) -> list[str]:
        x = g.input("x", "float16", ["T", 1, SIZE])
        return [g.node(Softmax(axis=-1), g.node(MatMul(), x, g.constant(FIRST.astype(np.float16))))]

    for graph, dtype in ((recurrent, np.float32), (halves, np.float16)):
        compiled = dovetail.Core(config=False).compile_model(model_of(graph), "ONEDNN")
        for size in (80, 30, 90, 31, 91, 32, 92, 33, 70):
            compiled({"x": RNG.standard_normal((size, 1, SIZE)).astype(dtype)})
        assert 70 in sizes_of(compiled)


def test_few_sizes_are_remembered() -> None:
    compiled, request = planned("NUMPY", PLAN_CACHE=8)
    for size in RNG.permutation(np.arange(100, 400)):
        request.infer({"x": rows(int(size) % 60 + 21)})
    assert len(sizes_of(compiled)) <= 8


def key(count: int) -> Signature:
    return ((DType.FLOAT32, (count, SIZE)),)


def runs(most: int) -> FirstRuns:
    """Those of a perceptron, where so many plans are kept."""
    graph = model_of(perceptron).graph
    plan = Plan((), 1, 1, (0,), (), lambda: PlanReport((), 0))
    return FirstRuns(graph, lambda key: type_and_fold(typed_inputs(graph, key)), lambda: plan, most)


def test_much_work_is_planned() -> None:
    first = runs(most=4)
    known = [key(n) for n in (4, 2)]
    assert first(key(3), known) is not None
    assert first(key(100_000), known) is None


def test_a_size_that_returns_late_counts_as_new() -> None:
    first = runs(most=2)
    known = [key(4)]
    assert [first(key(n), known) is None for n in (3, 2, 3, 7, 5, 3)] == [False, False, True, False, False, False]
