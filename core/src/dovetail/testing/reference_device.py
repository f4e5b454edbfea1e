"""A device that runs references, for tests of what surrounds a device: planning, sessions, op packs."""

from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from numpy.typing import NDArray

from dovetail.devices.contract import Device, DeviceInfo, Executable, ExecutableRequest, NodeReport
from dovetail.devices.kernels import REFERENCE_KERNEL
from dovetail.devices.memory import MemoryPlan
from dovetail.devices.refusals import Accepted, Reason, Refusal
from dovetail.devices.typed_node import TypedNode
from dovetail.evaluate.reference import run_reference
from dovetail.graph.graph import Graph
from dovetail.hookspecs import hookimpl
from dovetail.runtime import Core

__all__ = ["ReferenceDevice", "register_device"]

Array = NDArray[Any]


class ReferenceDevice(Device):
    """Runs every node by the reference of its operator; refuses post-ops, and nodes for which `refuses(node)` is true.

    A subclass may override `supports`: the plan reports the kernels that it names. `compiled` lists the graphs that were
    compiled, in order.
    """

    def __init__(self, info: DeviceInfo, refuses: Callable[[TypedNode], bool] = lambda node: False) -> None:
        self.info = info
        self.refuses = refuses
        self.compiled: list[Graph] = []

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """`REFERENCE_KERNEL`, or the refusal."""
        if node.post_ops:
            return Refusal(Reason.POST_OP, "the device runs no post-ops")
        return Refusal(Reason.OPERATOR, node.op.key) if self.refuses(node) else Accepted(REFERENCE_KERNEL)

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> Executable:
        """Options are ignored."""
        self.compiled.append(graph)
        kernels = [str(getattr(self.supports(TypedNode.of(node, graph)), "kernel", "")) for node in graph.nodes]
        return _ReferenceExecutable(graph, kernels)


class _ReferenceExecutable(Executable):
    def __init__(self, graph: Graph, kernels: Sequence[str]) -> None:
        self.graph = graph
        self.memory = MemoryPlan(peak=sum(graph.types[name].nbytes for node in graph.nodes for name in node.writes))
        self.reports = tuple(
            NodeReport(node.name, node.op.key, kernel, from_operator=True)  # the reference, whatever the kernel is called
            for node, kernel in zip(graph.nodes, kernels, strict=True)
        )

    def create_request(self) -> ExecutableRequest:
        return _ReferenceRequest(self.graph)


class _ReferenceRequest(ExecutableRequest):
    def __init__(self, graph: Graph) -> None:
        self.graph = graph

    def run(self, inputs: Sequence[Array]) -> Sequence[Array]:
        values = {**self.graph.constants, **dict(zip(self.graph.inputs, inputs, strict=True))}
        for node in self.graph.nodes:
            types = [self.graph.types[name] for name in node.writes]
            results = run_reference(node, [values[name] if name else None for name in node.inputs], types)
            values.update(zip(node.writes, results, strict=True))
        return [values[name] for name in self.graph.outputs]


def register_device(core: Core, info: DeviceInfo, make: Callable[[DeviceInfo], Device], name: str = "") -> None:
    """Add a device to a session as a plugin that nobody has installed; `make(info)` opens it.

    The plugin is called `name`, by default as the device's type in small letters.
    """

    @hookimpl
    def dovetail_device_info(config: Mapping[str, Any]) -> list[DeviceInfo]:
        return [info]

    @hookimpl
    def dovetail_device_open(info: DeviceInfo, options: Mapping[str, Any]) -> Device:
        return make(info)

    hooks = {"dovetail_device_info": dovetail_device_info, "dovetail_device_open": dovetail_device_open}
    plugin = SimpleNamespace(dovetail_api="1.0", **hooks)
    key = info.type.lower()
    core.plugins.register(plugin, name=name or key, kind="devices", key=key)
