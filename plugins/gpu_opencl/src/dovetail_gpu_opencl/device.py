"""The device: chooses kernels, builds programs, makes executables."""

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import pyopencl as cl

from dovetail.device import (
    Accepted,
    Choice,
    Device,
    DeviceError,
    DeviceInfo,
    DeviceUnavailable,
    Graph,
    KernelTable,
    Node,
    NodeReport,
    Refusal,
    TypedNode,
    choose,
    plan_graph,
    plan_regions,
)
from dovetail.errors import UsageError, did_you_mean
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.discovery import find_device
from dovetail_gpu_opencl.elementwise import Chain
from dovetail_gpu_opencl.executable import CLExecutable, Command
from dovetail_gpu_opencl.failures import translated
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.own_kernel import OwnKernel
from dovetail_gpu_opencl.program import BinaryCache, Programs, cache_folder
from dovetail_gpu_opencl.view import View

__all__ = ["OpenCLDevice"]

QUEUES = ("IN_ORDER", "OUT_OF_ORDER")
OPTIONS = ("QUEUE",)


class OpenCLDevice(Device):
    """One OpenCL device with a context of its own.

    Options: `QUEUE` is `IN_ORDER` (the default) or `OUT_OF_ORDER`. `caps` replaces what the device says of itself: for tests
    that choose kernels of another kind of device.
    """

    def __init__(self, info: DeviceInfo, options: Mapping[str, Any] | None = None, caps: Capabilities | None = None) -> None:
        self.info = info
        self._options = dict(options or {})
        queue_of(self._options)
        try:
            self._device = find_device(info.name)
        except KeyError:
            raise DeviceUnavailable(f"{info.name} ({info.full_name}) is not there any more") from None
        with translated(f"creating a context on {info.name}"):
            self._context = cl.Context([self._device])
        self.caps = caps or Capabilities.query(self._device)
        self.programs = Programs(self._context, self._device, self.caps, BinaryCache(cache_folder()))
        self._table: KernelTable[CLKernel] = KernelTable("dovetail_gpu_opencl.kernels")
        self._bound: dict[str, tuple[CLKernel, ...]] = {}
        self._lock = threading.Lock()

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Whether one of the kernels runs the node with its post-ops."""
        choice = self._choose(node)
        return choice if isinstance(choice, Refusal) else Accepted(choice.kernel.name)

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> CLExecutable:
        """Compile a graph in schedule order. Raises `CompileError` naming the node."""
        out_of_order = queue_of({**self._options, **options}) == "OUT_OF_ORDER"
        if out_of_order and not self.caps.out_of_order:
            raise DeviceError(f"{self.info.name} has no out-of-order queues", hint="leave out the option QUEUE")
        typed = {node.name: TypedNode.of(node, graph) for node in graph.nodes}
        chosen = {name: self._chosen(node) for name, node in typed.items()}
        memory = plan_graph(graph, lambda n: _in_place(chosen, typed, n), plan=plan_regions)
        launches = [(str(n.node), launch) for name, n in typed.items() for launch in chosen[name].kernel.launches(n)]
        commands = [Command(node, launch, self.programs.get(launch, node)) for node, launch in launches if not launch.is_empty]
        reports = [_report(typed[name], choice) for name, choice in chosen.items()]
        return CLExecutable(self._context, self._device, self.caps, graph, commands, reports, memory, out_of_order=out_of_order)

    def kernels(self, node: TypedNode) -> tuple[CLKernel, ...]:
        """All kernels that are asked for a node, in order."""
        stem = node.op.stem if not node.op.domain else ""
        with self._lock:
            if stem not in self._bound:
                listed = (View(), OwnKernel(), *(self._table[stem] if stem else ()), Chain())
                self._bound[stem] = tuple(kernel.on(self.caps) for kernel in listed)
            return self._bound[stem]

    def _choose(self, node: TypedNode) -> Choice[CLKernel] | Refusal:
        return choose(self.kernels(node), node)

    def _chosen(self, node: TypedNode) -> Choice[CLKernel]:
        choice = self._choose(node)
        if isinstance(choice, Refusal):
            raise UsageError(f"node {node.node} was not accepted by {self.info.name}: {choice}")
        return choice


def queue_of(options: Mapping[str, Any]) -> str:
    """The kind of queue that the options ask for. Raises `UsageError` for an unknown option or kind."""
    for name in options:
        if name not in OPTIONS:
            raise UsageError(f"unknown option {name!r} for OPENCL", hint=did_you_mean(name, OPTIONS))
    queue = options.get("QUEUE", "IN_ORDER")
    if queue not in QUEUES:
        raise UsageError(f"option QUEUE is {queue!r}; accepted: {', '.join(QUEUES)}")
    return str(queue)


def _in_place(chosen: Mapping[str, Choice[CLKernel]], typed: Mapping[str, TypedNode], node: Node) -> Sequence[str]:
    return chosen[node.name].kernel.in_place(typed[node.name])


def _report(node: TypedNode, choice: Choice[CLKernel]) -> NodeReport:
    kernel = choice.kernel
    tried = tuple((name, refusal) for name, refusal in choice.refusals if name not in ("view", "own", "chain"))
    return NodeReport(
        node.name,
        node.op.key,
        kernel.name,
        kernel.from_operator,
        tuple(_named(p) for p in node.post_ops),
        node.node.origins,
        tried,
    )


def _named(post_op: Any) -> str:
    return str(getattr(post_op, "algorithm", post_op.kind))
