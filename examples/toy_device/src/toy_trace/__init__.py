"""TRACE: a device that runs every operator's NumPy reference and writes down what came out of each node."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import (
    REFERENCE_KERNEL,
    Accepted,
    Device,
    DeviceInfo,
    DeviceOptions,
    DType,
    Executable,
    ExecutableRequest,
    Graph,
    MemoryPlan,
    Node,
    NodeReport,
    Reason,
    Refusal,
    TensorType,
    TypedNode,
    run_reference,
)
from dovetail.errors import InferError, OperatorError
from dovetail.hookspecs import hookimpl

dovetail_api = "1.0"

# Below every other device, so that AUTO and CPU never take this one.
INFO = DeviceInfo("TRACE", "TRACE", "CPU", "NumPy references, traced", priority=-1000)


@hookimpl
def dovetail_device_info(config: Mapping[str, Any]) -> list[DeviceInfo]:
    """There is always one."""
    return [INFO]


@hookimpl
def dovetail_device_open(info: DeviceInfo) -> "TraceDevice":
    """It needs nothing."""
    return TraceDevice()


@dataclass(frozen=True)
class Options(DeviceOptions):
    """`FILE`: to it a line is added for each node; None for nowhere."""

    device = "TRACE"
    accepted = {"FILE": ("the path of a file", lambda value: isinstance(value, str | PathLike))}

    FILE: str | PathLike[str] | None = None


class TraceDevice(Device):
    """Runs each node by its operator's reference, one at a time."""

    info = INFO

    def configured(self, options: Mapping[str, Any]) -> "TraceDevice":
        """The device for one compilation. Raises `UnknownOption` for a name, `UsageError` for a value."""
        Options.read(options)
        return self

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Whatever has static shapes and a reference or composition. Nodes are never merged, so that each one is seen."""
        if node.post_ops:
            return Refusal(Reason.POST_OP, "nodes are traced one by one")
        if not node.is_static:
            return Refusal(Reason.DYNAMIC, "shapes must be known while planning")
        if not (node.op.has_reference() or node.op.has_composition()):
            return Refusal(Reason.OPERATOR, f"{node.op.key} has no NumPy reference")
        return Accepted(REFERENCE_KERNEL, from_operator=True)

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> "TraceExecutable":
        """Nothing is prepared. `options` are those of `configured`."""
        return TraceExecutable(graph, Options.read(options).FILE)


class TraceExecutable(Executable):
    """The graph as it is; every value keeps its memory until the run ends."""

    def __init__(self, graph: Graph, file: str | PathLike[str] | None) -> None:
        self.graph = graph
        self.file = file
        self.reports = tuple(NodeReport(n.name, n.op.key, REFERENCE_KERNEL, True, origins=n.origins) for n in graph.nodes)
        self.memory = MemoryPlan(peak=sum(graph.types[name].nbytes for node in graph.nodes for name in node.writes))

    def create_request(self) -> "TraceRequest":
        """Requests share nothing but the graph."""
        return TraceRequest(self)


class TraceRequest(ExecutableRequest):
    """Walks along the nodes."""

    def __init__(self, executable: TraceExecutable) -> None:
        self.executable = executable

    def run(self, inputs: Sequence[NDArray[Any]]) -> Sequence[NDArray[Any]]:
        """Raises `InferError` naming the node whose reference fails."""
        graph, lines = self.executable.graph, []
        values = {**graph.constants, **dict(zip(graph.inputs, inputs, strict=True))}
        for node in graph.nodes:
            try:
                types = [graph.types[name] for name in node.writes]
                results = run_reference(node, [values[name] if name else None for name in node.inputs], types)
            except OperatorError as error:
                raise InferError(f"TRACE, {error.message}", hint=error.hint) from error
            values.update(zip(node.writes, results, strict=True))
            lines += [trace(node, name, values[name]) for name in node.writes]
        if self.executable.file is not None:
            # All lines in one piece: several requests may run at the same time.
            with open(self.executable.file, "a", encoding="utf-8") as stream:
                stream.write("".join(lines))
        return [values[name] for name in graph.outputs]


def trace(node: Node, name: str, array: NDArray[Any]) -> str:
    """One value as a line of JSON; `least` and `greatest` leave NaN out and are null for a value without numbers."""
    is_real = array.dtype.kind in "biu" or DType.of(array.dtype).is_float
    numbers = array.astype(np.float64).reshape(-1) if is_real else np.zeros(0)
    real = numbers[~np.isnan(numbers)]
    least, greatest = (float(real.min()), float(real.max())) if real.size else (None, None)
    kept = {"node": node.name, "op": node.op.key, "output": name, "type": str(TensorType.of(array))}
    return json.dumps({**kept, "nan": numbers.size - real.size, "least": least, "greatest": greatest}) + "\n"
