"""Plans for other sizes keep the order of memory while only sizes differ, and results stay right where more does."""

import gc
import weakref
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo
from dovetail_gpu_opencl import memory_plans
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.leaky_relu import LeakyRelu
from dovetail_ops_onnx.mat_mul import MatMul


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Any]]:
    """The memory plans that are made."""
    found: list[Any] = []
    inner = memory_plans.MemoryPlans.plan

    def plan(self: Any, *given: Any) -> Any:
        found.append(inner(self, *given))
        return found[-1]

    monkeypatch.setattr(memory_plans.MemoryPlans, "plan", plan)
    yield found
    found.clear()


def test_other_sizes_keep_the_order_and_results(info: DeviceInfo, planned: list[Any], rng: np.random.Generator) -> None:
    """Two products and a residual sum, written over a value where that has as many rows as the result."""
    w = rng.standard_normal((24, 24)).astype(np.float32) / 4
    g = dovetail.GraphBuilder()
    x, y = g.input("x", "float32", ("N", 24)), g.input("y", "float32", ("M", 24))
    h = g.node(LeakyRelu(alpha=0.25), g.node(MatMul(), x, g.constant(w)))
    h = g.node(Add(), g.node(MatMul(), h, g.constant(w)), h)
    with dovetail.Core().compile_model(g.model([g.node(Add(), h, y)]), info.name) as compiled:
        for rows, others in ((5, 5), (9, 9), (70, 70), (1, 6), (33, 33), (4, 1)):
            given = [rng.standard_normal((n, 24)).astype(np.float32) for n in (rows, others)]
            first = given[0].astype(np.float64) @ w
            first = np.where(first > 0, first, 0.25 * first)
            got = compiled({"x": given[0], "y": given[1]})[0]
            np.testing.assert_allclose(got, first @ w + first + given[1], rtol=1e-4, atol=1e-4)
    assert [plan.like is not None for plan in planned[:3]] == [False, True, True]


def test_constants_go_with_their_graph(info: DeviceInfo, bench: Any) -> None:
    """Later plans look at names."""
    device = OpenCLDevice(info)
    array = np.ones((40, 50), np.float32)
    graph, _ = bench.single(bench.op("MatMul"), [np.ones((3, 40), np.float32), array], (1,))
    constants = [weakref.ref(one) for one in graph.constants.values()]
    device.compile(graph, {}).close()
    assert device._memory_plans._known
    del graph, array
    gc.collect()
    assert [one() for one in constants] == [None]
