"""Partition: give every node to a device and cut the graph into one sub-graph for each device and level."""

from collections.abc import Mapping

from dovetail.dataclass import dataclass
from dovetail.graph.graph import Graph, Node

__all__ = ["Part", "partition"]


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
    read = dict.fromkeys(name for node in nodes for name in node.reads)
    inside = {id(node) for node in nodes}
    outputs = [v for v in written if v in graph.output_names or any(id(c) not in inside for c in graph.consumers.get(v, ()))]
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
