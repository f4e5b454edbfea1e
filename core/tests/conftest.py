"""Fixtures of the core's tests: a device in a few lines, and sessions that have nothing installed but such devices."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.device import (
    REFERENCE_KERNEL,
    Accepted,
    Device,
    DeviceInfo,
    Executable,
    ExecutableRequest,
    Graph,
    MemoryPlan,
    NodeReport,
    Reason,
    Refusal,
    TypedNode,
)
from dovetail.evaluate.reference import run_reference
from dovetail.plugins.discovery import index

Refuses = Callable[[TypedNode], bool]

STANDARD_PACK = "dovetail-ops-onnx"


class ToyRequest(ExecutableRequest):
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        values = {**self.graph.constants, **dict(zip(self.graph.inputs, inputs, strict=True))}
        for node in self.graph.nodes:
            types = [self.graph.types[n] for n in node.writes]
            results = run_reference(node, [values[n] if n else None for n in node.inputs], types)
            values.update(zip(node.writes, results, strict=True))
        return [values[n] for n in self.graph.outputs]


class ToyExecutable(Executable):
    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.memory = MemoryPlan(peak=sum(graph.types[n].nbytes for node in graph.nodes for n in node.writes))
        self.reports = tuple(NodeReport(n.name, n.op.key, REFERENCE_KERNEL, from_operator=True) for n in graph.nodes)

    def create_request(self) -> ToyRequest:
        return ToyRequest(self.graph)


class ToyDevice(Device):
    """Runs references; refuses what `refuses` says, and post-ops."""

    def __init__(self, info: DeviceInfo, refuses: Refuses) -> None:
        self.info = info
        self.refuses = refuses
        self.compiled: list[Graph] = []

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.POST_OP, "a toy has none")
        return Refusal(Reason.OPERATOR, node.op.key) if self.refuses(node) else Accepted(REFERENCE_KERNEL)

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> ToyExecutable:
        self.compiled.append(graph)
        return ToyExecutable(graph)


def toy_plugin(name: str, refuses: Refuses, opened: list[ToyDevice], priority: int = 0) -> Any:
    @dovetail.hookimpl
    def dovetail_device_info(config: Mapping[str, Any]) -> list[DeviceInfo]:
        return [DeviceInfo(f"{name}.0", name, "CPU", f"toy {name}", priority)]

    @dovetail.hookimpl
    def dovetail_device_open(info: DeviceInfo, options: Mapping[str, Any]) -> ToyDevice:
        opened.append(ToyDevice(info, refuses))
        return opened[-1]

    return SimpleNamespace(
        dovetail_api="1.0", dovetail_device_info=dovetail_device_info, dovetail_device_open=dovetail_device_open
    )


@pytest.fixture(autouse=True)
def _no_configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The configuration file of whoever runs the tests is not looked at."""
    monkeypatch.delenv("DOVETAIL_CONFIG", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))


@pytest.fixture
def toy_core(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """`toy_core(A=refuses, B=refuses)` -> (Core with just these toy devices and the standard operators, list of those opened)."""
    installed = tuple(record for record in index() if record.distribution == STANDARD_PACK)
    monkeypatch.setattr("dovetail.plugins.manager.index", lambda: installed)

    def make(**devices: Refuses) -> tuple[dovetail.Core, list[ToyDevice]]:
        core = dovetail.Core()
        opened: list[ToyDevice] = []
        for rank, (name, refuses) in enumerate(devices.items()):
            plugin = toy_plugin(name, refuses, opened, priority=-rank)
            core.plugins.register(plugin, name=f"toy-{name.lower()}", kind="devices", key=name.lower())
        return core, opened

    return make


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)
