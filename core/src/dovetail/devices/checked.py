"""Calls of a device's code with their results checked: a mistake in it is an error that names the device and the node."""

from collections.abc import Callable, Container, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.devices.contract import Device, Executable, ExecutableRequest, NodeReport
from dovetail.devices.declared_post_ops import check_post_ops
from dovetail.devices.device_array import DeviceArray
from dovetail.devices.memory import MemoryPlan
from dovetail.devices.refusals import Accepted, Reason, Refusal
from dovetail.devices.typed_node import LayerConfig, TypedNode
from dovetail.devices.virtual import Composite, Targets, VirtualDevice
from dovetail.errors import CompileError, DovetailError, InferError, PluginError, UsageError, raised_by_handler
from dovetail.evaluate.context import located
from dovetail.graph.graph import Graph, Node
from dovetail.graph.types import TensorType
from dovetail.names import operator_key, shortened

__all__ = [
    "Result",
    "ask",
    "check_results",
    "composite_of",
    "configurations",
    "configured",
    "explain_run",
    "lowered",
    "new_executable",
    "new_request",
    "prescribes",
    "reports_of",
    "targets_of",
]

_REPORT = "report it to the authors of the device"

_NAMED = 3
"""Nodes that a message names."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Result:
    """An output of an executable: the node that computes it, if one does, and its type."""

    node: Node | None
    type: TensorType


def ask(device: Device, node: TypedNode, *, kernel: bool = True) -> Accepted | Refusal:
    """The answer of `Device.supports`, or without `kernel` that of `Device.accepts`. Raises `CompileError` for any other."""
    asked = device.supports if kernel else device.accepts
    try:
        answer: object = asked(node)
    except (Exception, SystemExit) as error:
        _raise_others(error, node)
        raise _failed(device, f"{_question(device, kernel)}() raised", error, f" for node {node.node}") from error
    if isinstance(answer, Accepted) or (isinstance(answer, Refusal) and isinstance(answer.reason, Reason)):
        return answer
    # True of a plugin would count as a refusal.
    text = f"{_question(device, kernel)}() gave {_shown(answer)} for node {node.node}"
    raise CompileError(f"device {device.info.name}: {text}", hint="accepted: Accepted(kernel), or Refusal(Reason, detail)")


def lowered(device: Device, graph: Graph) -> Graph:
    """The result of `Device.lower`. Raises `CompileError` where that is not a graph of the same inputs and outputs."""
    found: object = _called(device, "lower()", device.lower, graph)
    if found is graph:
        return graph
    hint = "return the graph, or graph.replace(nodes=...), with its inputs and outputs"
    if not isinstance(found, Graph):
        raise CompileError(f"device {device.info.name}: lower() gave {_shown(found)}", hint=hint)
    if found.inputs != graph.inputs:
        text = f"lower() gave inputs {[*found.inputs]} for {[*graph.inputs]}"
        raise CompileError(f"device {device.info.name}: {text}", hint=hint)
    if len(found.outputs) != len(graph.outputs):
        text = f"lower() gave outputs {[*found.outputs]} for {[*graph.outputs]}"
        raise CompileError(f"device {device.info.name}: {text}", hint=hint)
    for before, name in zip(graph.outputs, found.outputs, strict=True):  # by position: a lowered value may have another name
        if name not in found.producers and name not in found.inputs and name not in found.constants:
            raise CompileError(f"device {device.info.name}: lower() gave a graph in which no node computes {name!r}", hint=hint)
        if found.types.get(name) != graph.types[before]:
            text = f"lower() changed the output {before!r} from {graph.types[before]} to {found.types.get(name)}"
            raise CompileError(f"device {device.info.name}: {text}", hint=hint)
    return found


def configurations(device: Device, node: TypedNode) -> Sequence[LayerConfig]:
    """The result of `Device.configurations`. Raises `CompileError` naming device and node where that is anything else."""
    try:  # as `_called`, whose text takes 2 us for each node
        found: object = device.configurations(node)
    except (Exception, SystemExit) as error:
        _raise_others(error, node)
        raise _failed(device, f"configurations() for node {node.node} raised", error) from error
    if isinstance(found, (tuple, list)) and found:
        for one in found:
            if not isinstance(one, LayerConfig):
                break
        else:
            return found
    text = f"configurations() gave {_shown(found)} for node {node.node}"
    raise CompileError(f"device {device.info.name}: {text}", hint="accepted: one LayerConfig or more, as a tuple")


def configured(name: str, method: str, call: Callable[[], Device]) -> Device:
    """The device that a method gives in place of another. Raises `PluginError` where it gives none."""
    try:
        found: object = call()
    except (Exception, SystemExit) as error:
        _raise_others(error)
        raise PluginError(f"device {name}: {method}() raised {type(error).__name__}: {error}", hint=_REPORT) from error
    if not isinstance(found, Device):
        hint = "return the device, or a copy of it"
        raise PluginError(f"device {name}: {method}() gave {_shown(found)}; accepted: a dovetail.device.Device", hint=hint)
    return found


def prescribes(device: Device, domain: str, op_type: str) -> bool:
    """The answer of `Device.prescribes`. Raises `CompileError` naming device and operator where it raises."""
    return _called(device, f"prescribes() for {operator_key(domain, op_type)}", device.prescribes, domain, op_type)


def new_executable(device: Device, graph: Graph, options: Any) -> Executable:
    """The result of `Device.compile`. Raises `CompileError` where that is not an executable with a memory plan."""
    found: object = _called(device, f"compiling {len(graph.nodes)} nodes", device.compile, graph, options)
    if not isinstance(found, Executable):
        given = f"compile() gave {_shown(found)}; accepted: a dovetail.device.Executable"
        raise CompileError(f"device {device.info.name}: {given}")
    memory = getattr(found, "memory", None)
    if not isinstance(memory, MemoryPlan):
        hint = "set self.memory to a MemoryPlan, such as MemoryPlan(peak=0)"
        raise CompileError(f"device {device.info.name}: the executable's memory is {_shown(memory)}", hint=hint)
    return found


def reports_of(name: str, executable: Executable, nodes: Container[str]) -> Sequence[NodeReport]:
    """The reports of an executable. Raises `CompileError` where they are not `NodeReport`s of these nodes."""
    reports = getattr(executable, "reports", None)
    if not isinstance(reports, tuple | list) or not all(isinstance(one, NodeReport) for one in reports):
        hint = "set self.reports to a tuple with a NodeReport for each node that runs"
        raise CompileError(f"device {name}: the executable's reports are {_shown(reports)}", hint=hint)
    for one in reports:
        if one.name not in nodes:
            raise CompileError(f"device {name} reports a node {one.name!r} that it was not given")
    return reports


def targets_of(name: str, virtual: VirtualDevice, *given: Any) -> tuple[Targets, ...]:
    """The answer of `VirtualDevice.targets`. Raises `PluginError` naming the device where that is anything else."""
    found: object = _of_virtual(name, "targets()", partial(virtual.targets, *given), virtual)
    if isinstance(found, tuple | list) and found and all(isinstance(one, Targets) and _are_names(one.devices) for one in found):
        return tuple(found)
    hint = "accepted: a tuple of one Targets or more, each with the names of devices in a tuple"
    raise PluginError(f"device {name}: targets() gave {_shown(found)}", hint=hint)


def composite_of(name: str, virtual: VirtualDevice, *given: Any) -> Composite | None:
    """The result of `VirtualDevice.compile`. Raises `PluginError` naming the device where that is anything else."""
    found: object = _of_virtual(name, "compile()", partial(virtual.compile, *given), virtual)
    if found is not None and not isinstance(found, Composite):
        raise PluginError(f"device {name}: compile() gave {_shown(found)}; accepted: a dovetail.virtual.Composite, or None")
    return found


def _of_virtual(name: str, what: str, call: Callable[[], T], virtual: VirtualDevice) -> T:
    try:
        return call()
    except (Exception, SystemExit) as error:
        _raise_others(error)
        raise PluginError(f"device {name}: {what} raised {located(error, _package(virtual))}", hint=_REPORT) from error


def _are_names(devices: object) -> bool:
    return isinstance(devices, tuple | list) and bool(devices) and all(isinstance(one, str) for one in devices)


def new_request(name: str, executable: Executable | Composite) -> ExecutableRequest:
    """The result of `create_request`. Raises `CompileError` where that is not a request."""
    try:
        found: object = executable.create_request()
    except (Exception, SystemExit) as error:
        _raise_others(error)
        text = f"create_request() raised {located(error, _package(executable))}"
        raise CompileError(f"device {name}: {text}", hint=_REPORT) from error
    if not isinstance(found, ExecutableRequest):
        given = f"create_request() gave {_shown(found)}; accepted: a dovetail.device.ExecutableRequest"
        raise CompileError(f"device {name}: {given}")
    return found


def check_results(name: str, given: object, expected: Sequence[Result]) -> Sequence[Any]:
    """The results of a run of a device. Raises `InferError` naming device and node where they are not of these types."""
    if not isinstance(given, tuple | list):
        raise _wrong(name, f"run() gave {_shown(given)}", expected)
    if len(given) != len(expected):
        raise _wrong(name, f"run() gave {len(given)} results, expected {len(expected)}", expected)
    for index, (array, result) in enumerate(zip(given, expected, strict=True)):
        if not isinstance(array, np.ndarray | np.generic | DeviceArray):  # ufuncs give scalars of arrays without axes
            text = f"run() gave for output {index} {_shown(array)}, expected an array {result.type}"
        elif array.dtype != result.type.dtype.numpy or array.shape != result.type.dims:
            text = f"run() gave for output {index} {array.dtype}{[*array.shape]}, expected {result.type}"
        else:
            continue
        raise _wrong(name, text, (result,))
    return given


def explain_run(name: str, executable: Executable, results: Sequence[Result], error: BaseException) -> None:
    """Raise `InferError` naming device and nodes for an exception that its code raised by mistake; nothing for other errors."""
    if isinstance(error, DovetailError | MemoryError) or raised_by_handler(error):
        return
    text = f"run() raised {located(error, _package(executable))} in the part that computes {_nodes(results)}"
    raise InferError(f"device {name}: {text}", hint=_REPORT) from error


def _question(device: Device, kernel: bool) -> str:
    """The method that the author of the device wrote."""
    return "supports" if kernel or type(device).accepts is Device.accepts else "accepts"


def _called(device: Device, what: str, call: Callable[..., T], *given: Any) -> T:
    try:
        return call(*given)
    except (Exception, SystemExit) as error:
        _raise_others(error, given[0])
        raise _failed(device, f"{what} raised", error) from error


def _raise_others(error: BaseException, asked: object = None) -> None:
    """Raise errors that the device did not make: those that name what is wrong, and mistakes in an operator's post-ops."""
    named = isinstance(error, DovetailError | MemoryError) or raised_by_handler(error)
    if isinstance(asked, TypedNode | Graph) and (not named or isinstance(error, UsageError)):
        check_post_ops(asked)
    if named:
        raise error


def _failed(device: Device, what: str, error: BaseException, where: str = "") -> CompileError:
    return CompileError(f"device {device.info.name}: {what} {located(error, _package(device))}{where}", hint=_REPORT)


def _wrong(name: str, text: str, expected: Sequence[Result]) -> InferError:
    hint = "ExecutableRequest.run returns an array for each output of the graph, of the compiled type, in a tuple or list"
    return InferError(f"device {name}: {text}; computed by {_nodes(expected)}", hint=hint)


def _nodes(results: Sequence[Result]) -> str:
    nodes = [*dict.fromkeys(result.node for result in results)][:_NAMED]
    return ", ".join(["no node" if node is None else f"node {node}" for node in nodes])


def _shown(value: object) -> str:
    return shortened(repr(value), 200)


def _package(code: object) -> str:
    """The package whose lines messages name."""
    return type(code).__module__.partition(".")[0]
