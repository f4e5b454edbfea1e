"""How many runs a trace records in detail, on a device whose runs and recorded runs take as long as a test says."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.device import DeviceInfo, Executable, Graph, PartRecorder
from dovetail.runtime import Slice, Trace
from dovetail.testing import ReferenceDevice, register_device
from dovetail_ops_onnx.relu import Relu

RUNS = 600
SHORT = 10_000


class Clock:
    """A clock that only the device moves on."""

    now = 0

    def __call__(self) -> int:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    found = Clock()
    monkeypatch.setattr("dovetail.runtime.traced_request.clock", found)
    return found


class Timed(ReferenceDevice):
    """Takes some nanoseconds for a run, and others for one that is recorded."""

    def __init__(self, info: DeviceInfo, clock: Clock, plain: int, recorded: int) -> None:
        super().__init__(info)
        self.clock, self.plain, self.recorded = clock, plain, recorded

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        executable = super().compile(graph, options)
        create = executable.create_request

        def create_request() -> Any:
            request: Any = create()
            run, run_traced = request.run, request.run_traced

            def timed(inputs: Sequence[Any]) -> Sequence[Any]:
                self.clock.now += self.plain
                return run(inputs)  # type: ignore[no-any-return]  # of a reference request

            def timed_traced(inputs: Sequence[Any], recorder: PartRecorder) -> Sequence[Any]:
                self.clock.now += self.recorded - self.plain  # the reference runs as above, and is recorded
                return run_traced(inputs, recorder)  # type: ignore[no-any-return]  # of a reference request

            request.run, request.run_traced = timed, timed_traced
            return request

        executable.create_request = create_request  # type: ignore[method-assign]  # of one object
        return executable


@pytest.fixture
def compiled(clock: Clock) -> Callable[[int, int], dovetail.CompiledModel]:
    def compile_model(plain: int, recorded: int) -> dovetail.CompiledModel:
        core = dovetail.Core()
        register_device(core, DeviceInfo("TIMED.0", "TIMED", "NPU", "a clock"), lambda info: Timed(info, clock, plain, recorded))
        g = dovetail.GraphBuilder()
        model = g.model([g.node(Relu(), g.input("x", "float32", [3]), outputs=["y"])])
        return core.compile_model(model, "TIMED.0")

    return compile_model


def runs_of(trace: Trace) -> tuple[list[Slice], list[Slice]]:
    """The slices of requests with slices of nodes in them, and those without."""
    asked = [one for one in trace.slices if one.kind == "request"]
    return [one for one in asked if not one.details], [one for one in asked if one.details]


def run(request: dovetail.InferRequest, count: int) -> None:
    for number in range(count):
        np.testing.assert_array_equal(request.infer(np.array([-1, 0, number], np.float32))[0], [0, 0, number])


def test_where_details_cost_much_most_runs_are_one_slice(compiled: Callable[[int, int], dovetail.CompiledModel]) -> None:
    with Trace() as trace, compiled(SHORT, 2 * SHORT) as model:
        run(model.create_infer_request(), RUNS)
    in_detail, others = runs_of(trace)
    # The first 100, and one of 32 of the other 500.
    assert (len(in_detail), len(others)) == (100 + 15, 485)
    assert [one.end - one.start for one in others] == [SHORT] * len(others)
    assert [one.kind for one in trace.slices].count("kernel") == len(in_detail)


@pytest.mark.parametrize(("plain", "complete"), [(SHORT, True), (100 * SHORT, False)], ids=["all are asked for", "runs are long"])
def test_all_runs_have_details(plain: int, complete: bool, compiled: Callable[[int, int], dovetail.CompiledModel]) -> None:
    with Trace(complete=complete) as trace, compiled(plain, 2 * plain) as model:
        run(model.create_infer_request(), RUNS)
    assert [len(some) for some in runs_of(trace)] == [RUNS, 0]


def test_runs_in_the_background_have_details(compiled: Callable[[int, int], dovetail.CompiledModel]) -> None:
    with Trace() as trace, compiled(SHORT, 2 * SHORT) as model:
        request = model.create_infer_request()
        run(request, RUNS)
        before = [one.kind for one in trace.slices].count("kernel")
        for _ in range(3):
            request.start_async(np.array([1, 2, 3], np.float32))
            request.wait()
        assert [one.kind for one in trace.slices].count("kernel") == before + 3


def test_a_request_that_is_asked_for_a_trace_has_all_details(compiled: Callable[[int, int], dovetail.CompiledModel]) -> None:
    with compiled(SHORT, 2 * SHORT) as model:
        found = model.create_infer_request().trace(np.array([1, 2, 3], np.float32), runs=RUNS)
    assert [len(some) for some in runs_of(found)] == [RUNS + 1, 0]
