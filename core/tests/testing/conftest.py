"""Toy devices that behave, and toy devices that do exactly one thing wrong."""

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import (
    Accepted,
    DeviceInfo,
    DType,
    Executable,
    ExecutableRequest,
    Graph,
    MemoryPlan,
    Node,
    NodeReport,
    Reason,
    Refusal,
    TypedNode,
    plan_graph,
)
from dovetail.evaluate.reference import run_reference
from dovetail.testing import ReferenceDevice, register_device
from dovetail.testing.check import Result
from dovetail.testing.devices import DeviceChecks

Array = NDArray[Any]


class ToyRequest(ExecutableRequest):
    """Runs references; every value is in one arena of bytes."""

    def __init__(self, graph: Graph, memory: MemoryPlan, faults: frozenset[str], shared: list[Any]) -> None:
        self.graph, self.memory, self.faults, self.shared = graph, memory, faults, shared
        self.arena = np.zeros(memory.peak + 64, np.uint8)
        self.runs = 0

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        self.runs += 1
        given = list(inputs)
        if "shares_requests" in self.faults:
            self.shared[:] = given
            time.sleep(0.02)  # the other run, which begins at the same time, needs some CPU
            given = list(self.shared)
        values: dict[str, Array] = dict(self.graph.constants)
        for name, array in zip(self.graph.inputs, given, strict=True):
            values[name] = self.placed(name, array)
        for node in self.graph.nodes:
            self.node(node, values)
        if "writes_inputs" in self.faults and inputs and inputs[0].size and inputs[0].flags.writeable:
            inputs[0].flat[0] += 1
        return [self.fetched(name, values[name]) for name in self.graph.outputs]

    def node(self, node: Node, values: dict[str, Array]) -> None:
        graph = self.graph
        bare = Node(node.name, node.op, node.inputs, node.outputs)
        results = run_reference(bare, [values[n] if n else None for n in node.inputs], [graph.types[n] for n in node.writes])
        if "wrong_add" in self.faults and node.op.op_type == "Add":
            results = [r + np.ones((), r.dtype) for r in results]
        if "drifts" in self.faults and self.runs > 1 and results[0].dtype == np.float32:
            results = [results[0] * np.float32(1 + 1e-6 * self.runs), *results[1:]]
        for name, array in zip(node.writes, results, strict=True):
            values[name] = self.placed(name, array)
        if "overruns" in self.faults and node.op.op_type == "Sqrt":
            end = self.memory.offsets[self.memory.storage[node.writes[0]]] + results[0].nbytes
            self.arena[end : end + 64] ^= 0xFF

    def placed(self, name: str, array: Array) -> Array:
        if array.dtype == object:
            return array
        start = self.memory.offsets[self.memory.storage[name]]
        place = self.arena[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
        if "loses_bits" in self.faults and array.dtype == np.float16:
            array = array.astype(np.float64).astype(np.float16)
            array[np.isnan(array)] = np.nan
        place[...] = array
        return place

    def fetched(self, name: str, array: Array) -> Array:
        return array.astype(array.dtype.newbyteorder(">")) if "foreign_dtype" in self.faults and array.ndim == 3 else array


class ToyExecutable(Executable):
    def __init__(self, graph: Graph, faults: frozenset[str]) -> None:
        self.graph, self.faults = graph, faults
        self.memory = plan_graph(graph, lambda node: ())
        kernel = "" if "nameless" in faults else "toy"
        self.reports = tuple(NodeReport(n.name, n.op.key, kernel) for n in graph.nodes)
        self.shared: list[Any] = []

    def create_request(self) -> ToyRequest:
        return ToyRequest(self.graph, self.memory, self.faults, self.shared)


class ToyDevice(ReferenceDevice):
    """Refuses what `claims` leaves out, and does what `faults` names."""

    def __init__(self, info: DeviceInfo, claims: Callable[[TypedNode], bool], faults: frozenset[str]) -> None:
        super().__init__(info, lambda node: not claims(node))
        self.faults = faults
        self.asked = 0

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        self.asked += 1
        if "changes_its_mind" in self.faults and self.asked % 2 == 0:
            return Refusal(Reason.MEMORY, "just now")
        bare = dataclasses.replace(node, node=dataclasses.replace(node.node, post_ops=()))
        answer = super().supports(bare if "ignores_post_ops" in self.faults else node)
        if isinstance(answer, Refusal):
            return Refusal(answer.reason, "") if "silent" in self.faults else answer
        return Accepted("toy")

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> ToyExecutable:
        return ToyExecutable(graph, self.faults)


def everything(node: TypedNode) -> bool:
    return True


def make_core(claims: Callable[[TypedNode], bool] = everything, faults: Sequence[str] = ()) -> dovetail.Core:
    """A session that has one toy device, TOY, in place of all that is installed."""
    core = dovetail.Core()
    register_device(core, DeviceInfo("TOY", "TOY", "CPU", "a toy"), lambda info: ToyDevice(info, claims, frozenset(faults)))
    return core


class Toy:
    """`toy(claims, faults)` gives the checks of such a device; `toy.results(..., group)` runs those of a group or `all`.

    Of many it runs a sample: each device package runs all of them on its own device.
    """

    def __init__(self, sampled: Callable[[Sequence[Any], int], Sequence[Any]]) -> None:
        self._sampled = sampled

    def __call__(self, claims: Callable[[TypedNode], bool] = everything, faults: Sequence[str] = ()) -> DeviceChecks:
        return DeviceChecks("TOY", lambda: make_core(claims, faults))

    def results(
        self, group: str, claims: Callable[[TypedNode], bool] = everything, faults: Sequence[str] = (), only: str = ""
    ) -> list[Result]:
        kit = self(claims, faults)
        found = [check for check in kit.checks if group in (check.group, "all") and check.name.startswith(only)]
        assert found
        return [check.result() for check in self._sampled(found, 600)]


@pytest.fixture
def toy(sampled: Callable[[Sequence[Any], int], Sequence[Any]]) -> Toy:
    return Toy(sampled)


@pytest.fixture
def float32_only() -> Callable[[TypedNode], bool]:
    """Claims the elementwise operators that a beginner would, in float32."""
    names = ("Relu", "Add", "Neg", "Sqrt")
    return lambda node: node.op.op_type in names and all(t is None or t.dtype is DType.FLOAT32 for t in node.inputs)
