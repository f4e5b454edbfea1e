"""Parts of a graph, one for each device and level: cut out, compiled by their devices, and wired into a plan."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.devices.checked import Result, new_executable
from dovetail.devices.contract import Device, Executable
from dovetail.devices.interruptible import Pace, Speed
from dovetail.errors import OutOfMemory
from dovetail.graph.graph import Graph, Node
from dovetail.graph.reloadable import aligned
from dovetail.phases import phase
from dovetail.planning.estimates import BRIEF, seconds_of
from dovetail.planning.plan import Plan, Step, Target

if TYPE_CHECKING:
    from dovetail.planning.report import PlanReport

__all__ = ["Part", "compile_parts", "made_constants", "partition", "wire"]

_LONG = 0.05
"""Estimated seconds of a node from which on a run need not wait for its end."""

_NOTED = 1 << 12
"""Bytes from which on a plan notes the constants that are its own."""


@dataclass(frozen=True)
class Part:
    """A sub-graph for one device. `outputs` are the values of the whole graph that the outputs of `graph` provide, in order."""

    device: str
    graph: Graph
    outputs: tuple[str, ...]


def partition(graph: Graph, device_of: Mapping[str, str]) -> tuple[Part, ...]:
    """The parts in an order in which each needs only results of earlier ones. `device_of` maps node names to devices.

    A node's level grows by one where a value crosses devices, so parts of one level are independent and no two parts need
    each other. Needs types and schedule order.
    """
    level: dict[str, int] = {}
    home: dict[str, str] = {}
    groups: dict[tuple[int, str], list[Node]] = {}
    devices = {*device_of.values()}
    if len(devices) == 1:
        groups[0, devices.pop()] = [*graph.nodes]
    for node in graph.nodes if not groups else ():
        device = device_of[node.name]
        depth = max((level[v] + (home[v] != device) for v in node.reads if v in level), default=0)
        groups.setdefault((depth, device), []).append(node)
        for value in node.writes:
            level[value], home[value] = depth, device
    return tuple(
        _part(graph, device, nodes, index)
        for index, ((_, device), nodes) in enumerate(sorted(groups.items(), key=lambda item: item[0]))
    )


def _part(graph: Graph, device: str, nodes: list[Node], index: int) -> Part:
    written = {name for node in nodes for name in node.writes}
    read = dict.fromkeys([name for node in nodes for name in node.reads])
    inside, is_whole = {id(node) for node in nodes}, len(nodes) == len(graph.nodes)

    def is_read_outside(value: str) -> bool:
        return not is_whole and any(id(c) not in inside for c in graph.consumers.get(value, ()))

    outputs = [v for v in written if v in graph.output_names or is_read_outside(v)]
    order = {name: i for i, name in enumerate(graph.types)}
    inputs = tuple(n for n in read if n not in written and n not in graph.constants)
    constants = {n: graph.constants[n] for n in read if n in graph.constants}
    types = {n: graph.types[n] for n in (*read, *written)}
    results = tuple(sorted(outputs, key=order.__getitem__))
    # What a node of another part reads must not be overwritten here.
    own = [n for n in graph.states if n in read and all(id(c) in inside for c in graph.consumers[n]) and n not in graph.outputs]
    continued = {name: graph.outputs[graph.states[name]] for name in own}
    states = {name: results.index(output) for name, output in continued.items() if output in results}
    return Part(device, Graph(tuple(nodes), inputs, results, constants, types, f"{graph.name}#{index}", states), results)


def compile_parts(parts: Sequence[Part], by_name: Mapping[str, Target], limit: int) -> list[Executable]:
    """The executables of parts by their devices. Raises `OutOfMemory` for one whose requests need more than `limit` bytes."""
    done: list[Executable] = []
    try:
        for part in parts:
            target = by_name[part.device]
            with phase(f"compile {len(part.graph.nodes)} nodes for {part.device}", "compile"):
                done.append(new_executable(target.device, _with_constants_for(target.device, part.graph), target.options))
            _check_peak(part, done[-1].memory.peak, limit)
    except BaseException:
        for executable in done:
            executable.close()
        raise
    return done


def _with_constants_for(device: Device, graph: Graph) -> Graph:
    moved = {n: new for n, a in graph.constants.items() if not device.takes_any_address and (new := aligned(a)) is not a}
    types = {**graph.types, **{name: replace(graph.types[name], value=new) for name, new in moved.items()}}
    return graph.replace(constants={**graph.constants, **moved}, types=types) if moved else graph


def _check_peak(part: Part, peak: int, limit: int) -> None:
    """Raise `OutOfMemory` when the values of one request, work buffers included, need more than `limit` bytes together."""
    if peak > limit:
        node = max(part.graph.nodes, key=lambda n: sum(part.graph.types[name].nbytes for name in n.writes))
        raise OutOfMemory(
            f"a request needs {peak:,} bytes on {part.device}, the most for the result of node {node}; the limit is {limit:,}",
            hint="raise it with the property MEMORY_LIMIT (bytes) if the machine has that much",
        )


def made_constants(parts: Sequence[Part], constants: Mapping[str, NDArray[Any]]) -> Mapping[int, int]:
    """The bytes of the large constants of parts that are not those of the model, by identity."""
    arrays = (array for part in parts for name, array in part.graph.constants.items() if constants.get(name) is not array)
    return {id(array): array.nbytes for array in arrays if array.nbytes > _NOTED}


def _pace(graph: Graph, seconds: Sequence[float], speed: Speed) -> Pace | None:
    """For runs of a part whose nodes may take so long; None where none may take `_LONG` seconds."""
    most = max(seconds, default=0.0)
    if most <= _LONG:
        return None
    return Pace(f"node {graph.nodes[seconds.index(most)]}", most / sum(seconds), sum(seconds), speed)


def _results(graph: Graph) -> tuple[Result, ...]:
    """The outputs of a part, without what they hold."""
    producers, types = graph.producers, graph.types
    return tuple([Result(producers.get(name), types[name].with_shape(types[name].shape)) for name in graph.outputs])


def wire(
    whole: Graph,
    parts: Sequence[Part],
    executables: Sequence[Executable],
    report: "Callable[[], PlanReport]",
    speeds: Mapping[str, Speed],
) -> Plan:
    """The plan that runs the executables: which values go into each and come out of it. `speeds` are those of runs, by device."""
    slot = {name: index for index, name in enumerate(whole.inputs)}
    steps, total = [], 0.0
    for part, executable in zip(parts, executables, strict=True):
        for name in part.outputs:
            slot.setdefault(name, len(slot))
        reads = tuple(slot[name] for name in part.graph.inputs)
        writes = tuple(slot[name] for name in part.outputs)
        seconds = seconds_of(part.graph)
        pace = _pace(part.graph, seconds, speeds[part.device])
        steps.append(Step(part.device, executable, reads, writes, _results(part.graph), pace))
        total += sum(seconds)
    outputs = tuple(slot[name] if name in slot else whole.constants[name] for name in whole.outputs)
    types = tuple(whole.types[name].with_shape(whole.types[name].shape) for name in whole.outputs)
    return Plan(tuple(steps), len(whole.inputs), len(slot), outputs, types, report, brief=total < BRIEF)
