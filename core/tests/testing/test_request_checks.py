"""The checks of staged runs, traces, kept results and final plans: what is right passes, and each fault is named."""

import copy
import re
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import (
    Accepted,
    Device,
    DeviceInfo,
    Executable,
    ExecutableRequest,
    Graph,
    Mark,
    MemoryPlan,
    NodeReport,
    PartRecorder,
    Reason,
    Refusal,
    StagedRun,
    TypedNode,
    clock,
)
from dovetail.errors import CompileError
from dovetail.testing import Outcome, register_device
from dovetail.testing.check import PASSED, ConformanceFailure, Verdict
from dovetail.testing.devices import DeviceChecks
from dovetail.testing.request_checks import final_plan, on_device, staged, traced
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.neg import Neg
from dovetail_ops_onnx.relu import Relu

Array = NDArray[Any]


class StagingRequest(ExecutableRequest):
    """Runs references in arrays of its own; the first input is the only one that a run leaves as it is."""

    def __init__(self, executable: "StagingExecutable") -> None:
        self.executable, self.fault = executable, executable.fault
        graph = executable.graph
        made = [np.zeros(graph.types[n].dims, graph.types[n].dtype.numpy) for n in (*graph.inputs, *graph.outputs)]
        self.inputs, self.outputs = made[: len(graph.inputs)], made[len(graph.inputs) :]
        self.runs = 0

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        if self.fault == "run_after" and self.runs:
            return [array + 1 for array in self.computed(inputs)]
        return self.computed(inputs)

    def computed(self, inputs: Sequence[Array]) -> list[Array]:
        graph = self.executable.graph
        values = {**graph.constants, **dict(zip(graph.inputs, inputs, strict=True))}
        for node in graph.nodes:
            values[node.outputs[0]] = np.asarray(node.op.reference(*(values[n] for n in node.inputs)))
        change = 1 if self.fault == "final" and self.executable.final else 0
        return [np.array(values[name]) + np.array(change, values[name].dtype) for name in graph.outputs]

    def staged(self) -> Any:
        inputs, outputs, lasting = list(self.inputs), list(self.outputs), frozenset({0})
        match self.fault:
            case "none":
                return None
            case "kind":
                return SimpleNamespace()
            case "fewer":
                outputs.pop()
            case "dtype":
                inputs[0] = inputs[0].astype(np.float64)
            case "strided":
                inputs[0] = np.zeros((*inputs[0].shape, 2), np.float32)[..., 0]
            case "read_only":
                inputs[0].flags.writeable = False
            case "lasting":
                lasting = frozenset({9})
        return StagedRun(tuple(inputs), tuple(outputs), self.run_staged, lasting)

    def run_staged(self) -> None:
        self.runs += 1
        results = self.computed(self.inputs)
        for place, array in zip(self.outputs, results, strict=True):
            place[...] = array if self.fault != "stale" or self.runs == 1 else place
        for number, array in enumerate(self.inputs):
            if number or self.fault == "overwrites":
                array[...] = np.nan

    def run_traced(self, inputs: Sequence[Array], recorder: PartRecorder) -> Sequence[Array]:
        names = [node.name for node in self.executable.graph.nodes]
        marks = [Mark("kernel", "elsewhere" if self.fault == "node" else name) for name in names]
        if self.fault == "mark":
            marks[0] = Mark("work", names[0])
        times: list[Any] = [clock() for _ in names]
        if self.fault != "times":
            times.append(clock())
        if self.fault == "seconds":
            times[-1] = float(times[-1])
        if self.fault == "backwards":
            times[-1] = 0
        recorder.stamps += times
        if self.fault != "unrecorded":
            recorder.add(marks)
        results = self.computed(inputs)
        return [array + 1 for array in results] if self.fault == "traced" else results


class StagingExecutable(Executable):
    def __init__(self, graph: Graph, fault: str, final: bool) -> None:
        self.graph, self.fault, self.final = graph, fault, final
        self.provisional = fault in ("final", "provisional", "unmade") and not final
        self.memory = MemoryPlan()
        self.reports = tuple(NodeReport(n.name, n.op.key, "toy") for n in graph.nodes)

    def create_request(self) -> StagingRequest:
        return StagingRequest(self)


class StagingDevice(Device):
    def __init__(self, info: DeviceInfo, fault: str) -> None:
        self.info, self.fault, self.final = info, fault, False

    def afresh(self) -> Device:
        found = copy.copy(self)
        found.final = True
        return found

    def supports(self, node: TypedNode) -> Any:
        if node.post_ops or node.op.op_type not in ("Add", "Neg", "Relu", "Mul"):
            return Refusal(Reason.OPERATOR, "accepted: Add, Neg, Relu, Mul")
        return Accepted("toy")

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        if self.fault == "unmade" and self.final:
            raise CompileError("the compiler is gone")
        return StagingExecutable(graph, self.fault, self.final)


GIVEN = {"x": 1, "y": 3}, {"x": 2, "y": -5}


def verdict(check: Callable[..., Any], fault: str = "") -> Any:
    """The verdict of one check on a small model on the device with a fault; None where it only passes."""
    g = dovetail.GraphBuilder()
    x, y = (g.input(name, "float32", (2, 3)) for name in "xy")
    summed = g.node(Add(), g.node(Neg(), x), y)
    model = g.model([summed, g.node(Relu(), summed)])
    feeds, other = ({name: np.full((2, 3), value, np.float32) for name, value in pair.items()} for pair in GIVEN)
    with dovetail.Core() as core:
        register_device(core, DeviceInfo("TOY", "TOY", "CPU", "a toy"), lambda info: StagingDevice(info, fault))
        with core.compile_model(model, "TOY", {"FALLBACK": False}) as compiled:
            return check(compiled, feeds, other)


def test_devices_have_these_checks() -> None:
    names = {check.name for check in DeviceChecks("ANY").checks if check.group == "requests"}
    assert {"on_device", "staged", "traced", "final_plan"} < names


@pytest.mark.parametrize("check", [staged, traced, on_device])
def test_a_device_that_is_right_passes(check: Callable[..., Any]) -> None:
    assert verdict(check) in (PASSED, None)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("kind", "staged() returns SimpleNamespace; accepted: StagedRun, None"),
        ("fewer", "staged().outputs has"),
        ("dtype", "staged().inputs[0] is float64"),
        ("strided", "staged().inputs[0] is not C-contiguous"),
        ("read_only", "staged().inputs[0] is read-only"),
        ("lasting", "staged().lasting has [9]"),
        ("stale", "staged().run() gives something else than run() for output 0"),
        ("overwrites", "staged().run() wrote input 0, which is `lasting`"),
        ("run_after", "after staged runs, run() gives something else for output 0"),
    ],
)
def test_a_wrong_staged_run_is_named(fault: str, message: str) -> None:
    with pytest.raises(ConformanceFailure, match=re.escape(message)):
        verdict(staged, fault)


def test_a_device_without_staged_runs_claims_none() -> None:
    found = verdict(staged, "none")
    assert found.outcome is Outcome.REFUSED
    assert "staged() returns None" in found.detail


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("traced", r"run_traced\(\) gives something else than run\(\) for output 0"),
        ("unrecorded", r"has not called add\(\) of its recorder"),
        ("times", r"appended (\d+) times for \1 marks; expected: one each, and the last end"),
        ("seconds", r"times that are not those of dovetail\.device\.clock"),
        ("backwards", "are not in order"),
        ("mark", "marks something as 'work'; accepted: kernel, transfer, enqueue, wait"),
        ("node", "marks the node 'elsewhere', on which there is no report"),
    ],
)
def test_a_wrong_trace_is_named(fault: str, message: str) -> None:
    with pytest.raises(ConformanceFailure, match=message):
        verdict(traced, fault)


def test_final_plans() -> None:
    assert verdict(final_plan) == Verdict(Outcome.REFUSED, "the device made the final plan at once")
    assert verdict(final_plan, "provisional") == PASSED
    with pytest.raises(ConformanceFailure, match="the final plan gives other results than the provisional one"):
        verdict(final_plan, "final")
    with pytest.raises(CompileError, match="the compiler is gone"):
        verdict(final_plan, "unmade")
