"""Placements for HETERO: least transfer cost, the first device that accepts, and stages of a pipeline; pins before all."""

from collections.abc import Callable, Mapping, Sequence
from math import inf

import numpy as np

from dovetail.errors import UsageError
from dovetail.virtual import Answers, DeviceInfo, Graph, Node
from dovetail_virtual_devices.costs import Speed, node_seconds, speeds, transfer_seconds, value_bytes
from dovetail_virtual_devices.cut import minimum_cut

__all__ = ["Costs", "Homes", "Placer", "first_accepting", "least_transfer", "pipeline", "read_pins"]

Homes = dict[str, str]
"""Node name -> device."""

_ROUNDS = 4
"""Passes over all pairs of devices; with two devices one is exact, with more the cost falls in each or the search ends."""


class Placer:
    """Places a graph's nodes: `how` those that no pin holds. `pins`: name of a node of the model -> device."""

    def __init__(
        self,
        infos: Mapping[str, DeviceInfo],
        how: Callable[["Costs"], Homes],
        pins: Mapping[str, str],
    ) -> None:
        self._infos, self._how, self._pins = infos, how, pins

    def __call__(self, graph: Graph, answers: Answers) -> Homes:
        """The device of each node that any accepts. Raises `UsageError` for a pin to a device that refuses the node."""
        return self._how(Costs(graph, self._pinned(graph, answers), speeds(self._infos)))

    def _pinned(self, graph: Graph, answers: Answers) -> Answers:
        """The answers, for pinned nodes only that of the device."""
        found = dict(answers)
        for node in graph.nodes:
            pins = {name: self._pins[name] for name in node.origins or (node.name,) if name in self._pins}
            if not pins:
                continue
            device = _only_one(node, pins)
            answer = answers[node.name].get(device)
            if not answer:
                raise UsageError(
                    f"node {node} has the affinity {device}, which refuses it: {answer}",
                    hint=f"accepted by: {', '.join(n for n, a in answers[node.name].items() if a) or 'none'}",
                )
            found[node.name] = {device: answer}
        return found


def _only_one(node: Node, pins: Mapping[str, str]) -> str:
    """The device of all parts of a node. Raises `UsageError` where a pass has merged nodes that are pinned to several."""
    if len(devices := set(pins.values())) > 1:
        listed = ", ".join(f"{name} on {device}" for name, device in pins.items())
        raise UsageError(
            f"node {node} stands for nodes whose affinities differ: {listed}",
            hint="give them one device, or leave out the pass that merges them (property PASSES)",
        )
    return devices.pop()


class Costs:
    """The estimates for one graph. Nodes that no device accepts are left out."""

    def __init__(self, graph: Graph, answers: Answers, devices: Mapping[str, Speed]) -> None:
        self.graph, self.devices = graph, devices
        self.nodes = [node for node in graph.nodes if any(answers[node.name].values())]
        self.seconds = {node.name: self._of(node, answers) for node in self.nodes}
        self.edges = list(self._edges())

    def _of(self, node: Node, answers: Answers) -> Mapping[str, float]:
        """Device -> seconds, for those that accept the node, in order of preference."""
        found = {name: answer for name, answer in answers[node.name].items() if answer and name in self.devices}
        outside = [*(n for n in node.reads if n in self.graph.inputs), *(n for n in node.writes if n in self.graph.outputs)]
        host = sum(value_bytes(self.graph, name) for name in outside)
        return {
            name: node_seconds(self.graph, node, answer, speed := self.devices[name])
            + (speed.latency * len(outside) + host / speed.link)
            for name, answer in found.items()
        }

    def _edges(self) -> Sequence[tuple[str, str, int]]:
        """Producer, consumer, bytes. A value that several nodes read counts once for each: a device may not read it twice."""
        known = {node.name for node in self.nodes}
        makers = {value: node.name for node in self.nodes for value in node.writes}
        pairs = {(makers[v], node.name, v) for node in self.nodes for v in node.reads if v in makers and node.name in known}
        return [(maker, reader, value_bytes(self.graph, value)) for maker, reader, value in sorted(pairs)]

    def total(self, homes: Mapping[str, str]) -> float:
        """Seconds of all nodes and transfers."""
        own = sum(self.seconds[name][home] for name, home in homes.items())
        return own + sum(self.moving(homes[a], homes[b], nbytes) for a, b, nbytes in self.edges)

    def moving(self, source: str, target: str, nbytes: int) -> float:
        """Seconds to bring a value from one device to another."""
        return 0.0 if source == target else transfer_seconds(nbytes, self.devices[source], self.devices[target])


def first_accepting(costs: Costs) -> Homes:
    """Each node on the first device that accepts it."""
    return {name: next(iter(found)) for name, found in costs.seconds.items()}


def least_transfer(costs: Costs) -> Homes:
    """The placement for which nodes and transfers take least time together.

    For two devices this is a minimum cut; for more each pair in turn exchanges its nodes by a minimum cut, until that helps no
    more. Never worse than all nodes on the first device that accepts each.
    """
    homes = first_accepting(costs)
    best = costs.total(homes)
    names = list(costs.devices)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    for _ in range(_ROUNDS):
        before = best
        for one, other in pairs:
            changed = _exchanged(costs, homes, one, other)
            if (total := costs.total(changed)) < best:
                homes, best = changed, total
        if best == before or len(pairs) < 2:
            break
    return homes


def _exchanged(costs: Costs, homes: Homes, one: str, other: str) -> Homes:
    """The nodes of two devices divided anew between them; those of other devices stay."""
    movable = {name for name, home in homes.items() if home in (one, other)}
    sides = {name: [costs.seconds[name].get(one, inf), costs.seconds[name].get(other, inf)] for name in movable}
    edges = []
    for maker, reader, nbytes in costs.edges:
        if maker in movable and reader in movable:
            edges.append((maker, reader, costs.moving(one, other, nbytes)))
        elif maker in movable:
            for side, home in enumerate((one, other)):
                sides[maker][side] += costs.moving(home, homes[reader], nbytes)
        elif reader in movable:
            for side, home in enumerate((one, other)):
                sides[reader][side] += costs.moving(homes[maker], home, nbytes)
    ordered = {name: (sides[name][0], sides[name][1]) for name in homes if name in movable}
    first = minimum_cut(ordered, edges)
    return {name: (one if name in first else other) if name in movable else home for name, home in homes.items()}


def pipeline(costs: Costs) -> Homes:
    """Stages in schedule order, one for each device, of which the slowest is as fast as can be.

    Consecutive requests overlap, so the slowest stage decides: its nodes, the values that it receives, and those that it sends.
    A node that the device of its stage refuses goes to the first device that accepts it. The best bounds are found by dynamic
    programming over the positions at which a stage may end.
    """
    names, nodes = list(costs.devices), costs.nodes
    moved = np.array(_bytes_across(costs)[: len(nodes) + 1])
    sums = {name: [0.0] for name in names}
    for node in nodes:
        options = costs.seconds[node.name]
        for name in names:
            sums[name].append(sums[name][-1] + options.get(name, max(options.values())))
    best = np.full(len(nodes) + 1, inf)
    best[0] = 0.0
    starts: list[Sequence[int]] = []
    for name in names:
        total, speed = np.array(sums[name]), costs.devices[name]
        ends = np.where(moved > 0, speed.latency + moved / speed.link, 0.0)
        following, origin = best.copy(), list(range(len(nodes) + 1))  # of a stage without nodes
        for end in range(1, len(nodes) + 1):
            slowest = np.maximum(best[:end], total[end] - total[:end] + ends[:end] + ends[end])
            start = int(slowest.argmin())
            if slowest[start] < following[end]:
                following[end], origin[end] = slowest[start], start
        best = following
        starts.append(origin)
    return _staged(costs, names, starts)


def _bytes_across(costs: Costs) -> list[int]:
    """For each position in the schedule the bytes that are made before it and read after it."""
    order = {node.name: index for index, node in enumerate(costs.nodes)}
    change = [0] * (len(order) + 2)
    last: dict[tuple[str, int], int] = {}
    for maker, reader, nbytes in costs.edges:
        last[maker, nbytes] = max(last.get((maker, nbytes), 0), order[reader])
    for (maker, nbytes), until in last.items():
        change[order[maker] + 1] += nbytes
        change[until + 1] -= nbytes
    total, found = 0, []
    for amount in change:
        total += amount
        found.append(total)
    return found


def _staged(costs: Costs, names: Sequence[str], starts: Sequence[Sequence[int]]) -> Homes:
    homes: Homes = {}
    end = len(costs.nodes)
    for index in reversed(range(len(names))):
        start = starts[index][end]
        for node in costs.nodes[start:end]:
            options = costs.seconds[node.name]
            homes[node.name] = names[index] if names[index] in options else next(iter(options))
        end = start
    return homes


def read_pins(devices: Mapping[str, str], given: Mapping[str, object]) -> dict[str, str]:
    """Affinities as node -> device. `devices` maps names and types to the devices listed. Refusals pin nothing.

    Raises `UsageError` for a device that is not listed.
    """
    pins = {}
    for node, device in given.items():
        if not isinstance(device, str):
            continue  # a refusal, as `query_model` gives it
        if device.upper() not in devices:
            listed = ", ".join(dict.fromkeys(devices.values()))
            raise UsageError(f"node {node!r} has the affinity {device!r}", hint=f"devices listed: {listed}")
        pins[node] = devices[device.upper()]
    return pins
