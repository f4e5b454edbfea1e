"""Layout: choose a configuration for every node so that the fewest bytes are reordered, and put `Reorder` nodes where needed."""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence

from dovetail.dataclass import dataclass
from dovetail.devices.typed_node import LayerConfig, TypedNode
from dovetail.graph.graph import Graph, Node
from dovetail.graph.layout import ANY, PLAIN, Layout
from dovetail.graph.post_ops import Eltwise
from dovetail.graph.types import TensorType, same_bytes
from dovetail.internal.reorder import Reorder

__all__ = ["BEAM", "Reorder", "assign_layouts"]

BEAM = 16
"""States kept at once. The search is exact while it holds them all. Of 40 models two Inceptions would find 5 and 12 % fewer bytes
with 64, which takes up to 2.6 times as long."""
FEW = 4
"""States kept at once by a first search. What it finds, mostly the best, is the most that a second one may cost."""
ENTRIES, LEAST = 4096, 8
"""Values in all states together: the wider they are, the fewer are kept, but never fewer than `LEAST`. So the work grows with
the number of nodes, whatever the graph."""

Configurations = Callable[[TypedNode], Sequence[LayerConfig]]


# For each value alive whose layouts differ between states, the layouts in which it exists so far.
State = frozenset[tuple[str, frozenset[Layout]]]

_Viewed = dict[tuple[tuple[int, ...], Layout], bool]
"""Whether the bytes of plain values of these sizes are the same in a layout."""


@dataclass(frozen=True, slots=True)
class _Way:
    """A configuration without ANY, which number it has among the node's, and what it wants: value, layout, bytes of a reorder."""

    config: LayerConfig
    rank: int
    wants: tuple[tuple[str, Layout, int], ...]
    writes: Mapping[str, frozenset[Layout]]


@dataclass(frozen=True, slots=True)
class _Step:
    """How a state was reached: bytes reordered so far and costs, configurations changed from the preferred one, the way back."""

    cost: tuple[int, int]
    config: LayerConfig | None
    before: "_Step | None"


def assign_layouts(graph: Graph, configurations: Configurations) -> Graph:
    """The graph with the layout of every value in its types, and `Reorder` nodes where a value is needed in another layout.

    Inputs and outputs of the graph stay plain. A value is reordered once for all its readers. Constants cost nothing: they
    appear under a second name, in the layout that is wanted. Needs types and schedule order; the graph comes back as it was
    when every node prefers everything plain or as it comes.
    """
    choices: list[Sequence[LayerConfig]] = [tuple(configurations(TypedNode.of(node, graph))) for node in graph.nodes]
    preferred = {id(c[0]): c[0] for c in choices}.values()  # few objects
    plain = {PLAIN, ANY}
    if all({*c.inputs, *c.outputs, *c.operands} <= plain and not c.cost and c.holds is None for c in preferred):
        return graph
    configs = _cheapest(graph, choices)
    while missed := {i: c for i, c in enumerate(configs) if c.holds is not None and not c.holds()}:
        choices = [
            [c for c in choice if c.holds is not missed[i].holds] if i in missed else choice for i, choice in enumerate(choices)
        ]
        configs = _cheapest(graph, choices)
    return _rewrite(graph, configs)


def _cheapest(graph: Graph, choices: Sequence[Sequence[LayerConfig]]) -> list[LayerConfig]:
    """The configurations, one for each node, with the least bytes of reorders."""
    ways = _ways(graph, choices)
    step, dropped = _search(graph, ways, FEW)
    assert step is not None
    return _way_back((_search(graph, ways, BEAM, step.cost)[0] if dropped else None) or step)


def _ways(graph: Graph, choices: Sequence[Sequence[LayerConfig]]) -> list[list[_Way]]:
    known: dict[str, set[Layout]] = {}
    viewed: _Viewed = {}
    found = []
    for node, configs in zip(graph.nodes, choices, strict=True):
        # The layouts of all states, because a state that was dropped may be imitated.
        seen = frozenset(layout for name in dict.fromkeys(node.reads) for layout in known.get(name, ()))
        ways = [_way(node, *one, graph, viewed) for one in _concrete(node, configs, seen, graph)]
        for way in ways:
            for name, kinds in (*way.writes.items(), *((name, {layout}) for name, layout, _ in way.wants)):
                known.setdefault(name, set()).update(kinds)
        found.append(ways)
    return found


def _search(
    graph: Graph, choices: Sequence[Sequence[_Way]], beam: int, most: tuple[int, int] | None = None
) -> tuple[_Step | None, bool]:
    """Dynamic programming over the schedule; a state is what the values alive look like. The last step of the cheapest way, and
    whether states were dropped that none of those kept can imitate. None costs more than `most`; no step if all do.

    Values with the same layouts in all states are kept apart, so that a step costs only the others. An output without further
    readers is settled at once: whatever follows, it costs a reorder or none.
    """
    last = {name: i for i, node in enumerate(graph.nodes) for name in node.reads}
    outputs = graph.output_names
    sizes = {name: graph.types[name].nbytes for node in graph.nodes for name in (*node.reads, *node.writes)}
    alike: dict[str, frozenset[Layout]] = {name: frozenset({PLAIN}) for name in graph.inputs}
    states: dict[State, _Step] = {frozenset(): _Step((0, 0), None, None)}
    dropped = False
    for index, (node, ways) in enumerate(zip(graph.nodes, choices, strict=True)):
        reads = dict.fromkeys(node.reads)
        touched = {name: alike.pop(name) for name in reads if name in alike}
        ended = [name for name in (*reads, *node.writes) if last.get(name, -1) <= index]
        found: dict[State, _Step] = {}
        for state, step in states.items():
            alive = dict(state) | touched
            for way in ways:
                after, nbytes = _advance(way, alive)
                for name in ended:
                    layouts = after.pop(name, None)
                    if layouts is not None and name in outputs and PLAIN not in layouts:
                        nbytes += sizes[name]
                cost = (step.cost[0] + nbytes + way.config.cost, step.cost[1] + way.rank)
                if most is not None and cost > most:
                    continue
                key = frozenset(after.items())
                if key not in found or cost < found[key].cost:
                    found[key] = _Step(cost, way.config, step)
        if not found:
            return None, True
        states, whole = _pruned(found, sizes, beam)
        dropped = dropped or not whole
        common = frozenset.intersection(*states)
        alike.update(common)
        states = {state - common: step for state, step in states.items()} if common else states
    return min(states.values(), key=lambda step: step.cost), dropped


def _pruned(states: dict[State, _Step], sizes: Mapping[str, int], beam: int) -> tuple[dict[State, _Step], bool]:
    """The cheapest states, as many as there is room for, without those that one of the `LEAST` cheapest can imitate; and whether
    these are all.

    A state can imitate another if, with the reorders that make all layouts of the other, it still costs no more.
    """
    if len(states) <= min(LEAST, beam):
        return states, True
    room = min(beam, max(LEAST, ENTRIES // max(1, max(map(len, states)))))
    kept: dict[State, _Step] = {}
    cheapest: list[tuple[tuple[int, int], dict[str, frozenset[Layout]]]] = []
    for state, step in sorted(states.items(), key=lambda item: item[1].cost):
        if any(_imitates(cost, layouts, state, step, sizes) for cost, layouts in cheapest):
            continue
        if len(kept) == room:
            return kept, False
        kept[state] = step
        if len(cheapest) < LEAST:
            cheapest.append((step.cost, dict(state)))
    return kept, True


def _imitates(
    cost: tuple[int, int], layouts: Mapping[str, frozenset[Layout]], state: State, step: _Step, sizes: Mapping[str, int]
) -> bool:
    room = step.cost[0] - cost[0] - (cost[1] > step.cost[1])
    for name, wanted in state:
        if room < 0:
            return False
        room -= sizes[name] * len(wanted - layouts[name])
    return room >= 0


def _concrete(
    node: Node, configs: Sequence[LayerConfig], seen: frozenset[Layout], graph: Graph
) -> Iterator[tuple[int, LayerConfig]]:
    """Configurations without ANY, with their rank: ANY becomes plain and each layout in `seen`, where something read exists."""
    for rank, config in enumerate(configs):
        if ANY not in (*config.inputs, *config.outputs, *config.operands):
            yield rank, config
            continue
        for layout in dict.fromkeys((PLAIN, *sorted(seen, key=str))):
            if _possible(node, config, layout, graph):
                yield rank, _resolved(config, layout)


def _possible(node: Node, config: LayerConfig, layout: Layout, graph: Graph) -> bool:
    """Whether all places marked ANY can have the layout; opaque tokens are taken at the device's word.

    In blocks only what has as many channels: a single one would be filled up, and no longer broadcast.
    """
    places = [*_wants(node, config), *zip(node.writes, config.outputs, strict=True)]
    types = [graph.types[name] for name, wanted in places if wanted == ANY]
    ranks = {tensor.rank for tensor in types}
    if layout.block:
        return len(ranks) == 1 and len({tensor.dims[1] for tensor in types}) == 1
    if not layout.is_permutation:
        return len(ranks) == 1
    return layout == PLAIN or (len(ranks) == 1 and layout.fits(next(iter(ranks))))


def _resolved(config: LayerConfig, layout: Layout) -> LayerConfig:
    def fill(side: tuple[Layout, ...]) -> tuple[Layout, ...]:
        return tuple(layout if one == ANY else one for one in side)

    return LayerConfig(fill(config.inputs), fill(config.outputs), fill(config.operands), config.cost, config.holds)


def _way(node: Node, rank: int, config: LayerConfig, graph: Graph, viewed: _Viewed) -> _Way:
    wanted = ((name, layout) for name, layout in _wants(node, config) if name not in graph.constants)
    wants = tuple((name, layout, _moved(graph.types[name], layout, viewed)) for name, layout in wanted)
    writes = {name: frozenset({layout}) for name, layout in zip(node.writes, config.outputs, strict=True)}
    return _Way(config, rank, wants, writes)


def _moved(tensor: TensorType, layout: Layout, viewed: _Viewed) -> int:
    """The bytes that a reorder of the plain value moves: none, where they are the same in both layouts."""
    if layout == PLAIN or 1 not in tensor.dims or not (layout.is_permutation or layout.block):
        return tensor.nbytes
    key = tensor.dims, layout
    if key not in viewed:
        viewed[key] = same_bytes(tensor, tensor.with_layout(layout))
    return 0 if viewed[key] else tensor.nbytes


def _advance(way: _Way, alive: Mapping[str, frozenset[Layout]]) -> tuple[dict[str, frozenset[Layout]], int]:
    after, nbytes = dict(alive), 0
    for name, layout, size in way.wants:
        if name in after and layout not in after[name]:
            after[name] |= {layout}
            nbytes += size
    after.update(way.writes)
    return after, nbytes


def _wants(node: Node, config: LayerConfig) -> Iterator[tuple[str, Layout]]:
    for name, layout in zip(node.inputs, config.inputs, strict=True):
        if name:
            yield name, layout
    yield from zip(node.operands, config.operands, strict=True)


def _way_back(step: _Step) -> list[LayerConfig]:
    configs = []
    current: _Step | None = step
    while current is not None and current.config is not None:
        configs.append(current.config)
        current = current.before
    return configs[::-1]


class _Rewriter:
    """Builds the new graph: which name holds a value in which layout."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self.types = dict(graph.types)
        self.constants = dict(graph.constants)
        self._free_name = graph.free_name
        self.names = {(n, PLAIN): n for n in (*graph.inputs, *graph.constants)}

    def get(self, name: str, layout: Layout) -> str:
        """The value `name` in `layout`, reordered if it is not there yet."""
        if (name, layout) not in self.names:
            moved = self._free_name(f"{name}@{layout}")
            self.names[name, layout] = moved
            self.types[moved] = self.types[name].with_layout(layout)
            if name in self.constants:
                self.constants[moved] = self.constants[name]
            else:
                self.nodes.append(Node(self._free_name(f"reorder:{moved}"), Reorder(), (name,), (moved,)))
        return self.names[name, layout]

    def add(self, node: Node, config: LayerConfig) -> None:
        """Append a node whose reads are in the layouts of its configuration."""
        inputs = tuple(n and self.get(n, layout) for n, layout in zip(node.inputs, config.inputs, strict=True))
        wanted = iter([self.get(n, layout) for n, layout in zip(node.operands, config.operands, strict=True)])
        post_ops = tuple(p if isinstance(p, Eltwise) else dataclasses.replace(p, operand=next(wanted)) for p in node.post_ops)
        same = inputs == node.inputs and not node.operands
        self.nodes.append(node if same else dataclasses.replace(node, inputs=inputs, post_ops=post_ops))
        for name, layout in zip(node.writes, config.outputs, strict=True):
            self.types[name] = self.types[name].with_layout(layout)
            self.names[name, layout] = name


def _rewrite(graph: Graph, configs: Sequence[LayerConfig]) -> Graph:
    new = _Rewriter(graph)
    for node, config in zip(graph.nodes, configs, strict=True):
        new.add(node, config)
    outputs = tuple(new.get(name, PLAIN) for name in graph.outputs)
    return graph.replace(nodes=tuple(new.nodes), outputs=outputs, constants=new.constants, types=new.types)
