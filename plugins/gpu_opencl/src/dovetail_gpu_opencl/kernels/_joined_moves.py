"""Nodes that only move elements as one operator, which is one launch, and the pass that makes it.

Slices, joins, transposes, repetitions and views, with conversions of floating-point types between them, are index maps: what the
last of them gives is read where the first of them reads it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import ClassVar

from dovetail.device import Convert, Graph, Node, TensorType, TypedNode
from dovetail.op import AbstractOperator, Port
from dovetail.passes import drop_dead_nodes, represented_by
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div
from dovetail_gpu_opencl.kernels._composed_moves import composed, whole
from dovetail_gpu_opencl.kernels._copy import AT_ONCE, Move, MoveKernel
from dovetail_gpu_opencl.table import named
from dovetail_ops_onnx.concat import Concat

__all__ = ["JoinedMoves", "merge_moves"]

_MOST = 4
"""Moves that make a value out of others: two such values are more than a launch has, and another launch is as fast."""

Maps = dict[str, tuple[Move, ...]]
"""For values that nodes move, the moves that make them of other values."""


@dataclass(frozen=True, eq=False)
class JoinedMoves(AbstractOperator):
    """Nodes that only move elements. Inputs are the values `reads`, outputs the values `writes`, by their names in the nodes.

    `movers` are the names of the kernels that know the moves of each node; None for views and conversions.
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "JoinedMoves"
    stem: ClassVar[str] = "joined_moves"
    inputs: ClassVar[tuple[Port, ...]] = (Port("X", variadic=True),)
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y", variadic=True),)

    nodes: tuple[Node, ...]
    movers: tuple[str | None, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        """The types of the results."""
        known = self._inferred(types)
        return tuple(known[name] for name in self.writes)

    def moves(self, types: Sequence[TensorType | None], asking: CLKernel) -> Maps | None:
        """For each result its moves between plain tensors, on the device of the kernel that asks.

        None where they are not moves in these sizes.
        """
        known, maps = self._inferred(types), Maps()
        for node, name in zip(self.nodes, self.movers, strict=True):
            results = {name: known[name] for name in node.writes}
            typed = TypedNode(node, tuple(known.get(name) for name in node.inputs), tuple(results.values()))
            mover = None if name is None else named(name, typed.op, asking)
            found = None if mover is not None and not isinstance(mover, MoveKernel) else _of_node(typed, mover, maps)
            if found is None:
                return None
            maps |= found
        return {name: maps[name] for name in self.writes}

    def _inferred(self, types: Sequence[TensorType | None]) -> dict[str, TensorType]:
        known = {name: t for name, t in zip(self.reads, types, strict=True) if t is not None}
        for node in self.nodes:
            found = node.op.infer(*(known.get(name) for name in node.inputs))
            known.update(zip(node.outputs, found if isinstance(found, tuple) else (found,), strict=True))
        return known


def _of_node(node: TypedNode, mover: MoveKernel | None, maps: Mapping[str, tuple[Move, ...]]) -> Maps | None:
    """The moves that make the results of a node, of the values of which `maps` has none; None where these are not moves."""
    (first, *_), names = node.node.inputs, node.node.writes
    steps = [whole(first, names[0], node.outputs[0].size)] if mover is None else mover.moves(node)
    found: dict[str, list[Move]] = {name: [] for name in names}
    for step in steps:
        if not isinstance(step.src, str):
            return None
        for before in maps.get(step.src) or (None,):
            move = step if before is None else composed(before, step)
            if move is None:
                return None
            if 0 not in move.dims:
                found[step.dst].append(move)
    return {name: tuple(moves) for name, moves in found.items()}


def merge_moves(graph: Graph, kernel_of: Callable[[TypedNode], CLKernel | None], accepts: Callable[[TypedNode], bool]) -> Graph:
    """The graph with nodes that only move elements joined where that saves launches.

    What they write for other nodes is made of what they read from others; results that can be made from the same node on are one
    launch. `kernel_of` gives the kernel of a node, `accepts` says whether a kernel runs a merged one.
    """
    nodes = _Merger(graph, kernel_of).merged(accepts)
    return graph if nodes == graph.nodes else drop_dead_nodes(graph.replace(nodes=nodes))


class _Merger:
    """The maps of all values that nodes move, and the groups of results that are a launch."""

    def __init__(self, graph: Graph, kernel_of: Callable[[TypedNode], CLKernel | None]) -> None:
        self._graph = graph
        self._kernel_of = kernel_of
        self._named = {node.name: node for node in graph.nodes}
        self._movers: dict[str, MoveKernel | None] = {}  # of the nodes that only move, by their names
        self._launches: dict[str, int] = {}
        self._maps: Maps = {}
        self._within: dict[str, frozenset[str]] = {}  # the nodes that move what a value is made of
        self._cut: set[str] = set()  # values that others are made of, though they are moved themselves
        self._places = {name: place for place, node in enumerate(graph.nodes) for name in node.writes}
        for node in graph.nodes:
            self._moves(node)

    def _moves(self, node: Node) -> None:
        """Notes how the node moves, if that is all it does."""
        types = self._graph.types
        if node.post_ops or not node.reads or not all(node.outputs) or not all(types[n].is_static for n in node.reads):
            return
        typed, mover = TypedNode.of(node, self._graph), None
        if not node.op.is_view and not isinstance(node.op, Convert):
            kernel = self._kernel_of(typed)
            if not isinstance(kernel, MoveKernel) or not kernel.only_moves:
                return
            mover = kernel
        elif len(node.outputs) > 1:
            return
        found = self._map(typed, mover)
        if found is None:
            return
        within = (self._within[name] for name in node.reads if self._seen(name))
        self._within |= dict.fromkeys(node.writes, frozenset((node.name,)).union(*within))
        self._maps |= found
        self._movers[node.name] = mover
        is_free = node.op.is_view or (mover is not None and len(mover.configurations(typed)) > 1)  # in some layout
        self._launches[node.name] = 0 if is_free else ceil_div(sum(map(len, found.values())), AT_ONCE)

    def _map(self, node: TypedNode, mover: MoveKernel | None) -> Maps | None:
        """The moves of the node's results.

        Values that are made by several moves are cut off, so that the node reads them, where it joins them with others, or where
        the moves would be too many.
        """
        if not all(t.size for t in node.outputs):
            return None
        if isinstance(node.op, Convert) and any(
            self._graph.types[str(move.src)].dtype is not node.given(0).dtype for move in self._seen(node.node.inputs[0])
        ):
            return None  # converted twice, and rounded in between
        joins = len(node.node.reads) > 1 and isinstance(node.op, Concat)
        for cut in (joins, True):
            if cut:
                self._cut |= {name for name in node.node.reads if len(self._seen(name)) > 1}
            found = _of_node(node, mover, {name: self._seen(name) for name in node.node.reads})
            if found is not None and all(0 < len(moves) <= _MOST for moves in found.values()):
                return found
        return None

    def _seen(self, name: str) -> tuple[Move, ...]:
        """The moves that make a value for its readers; none where they read the value itself."""
        return () if name in self._cut else self._maps.get(name, ())

    def merged(self, accepts: Callable[[TypedNode], bool]) -> tuple[Node, ...]:
        """The nodes of the graph, some of them merged."""
        groups, views = self._groups()
        gone_nodes, added = set[str](), list[tuple[int, Node]]()
        for keys in self._clusters(groups, views):
            parts = [groups[key] for key in keys]
            gone = frozenset().union(*(self._within[name] for part in parts for name in part)) - views
            after = sum(ceil_div(self._count(part), AT_ONCE) for part in parts)
            if after >= sum(self._launches[name] for name in gone):
                continue
            made = [(key, self._joined(part)) for key, part in zip(keys, parts, strict=True)]
            if all(accepts(TypedNode.of(node, self._graph)) for _, node in made):
                gone_nodes |= gone
                added += made
        return self._in_order(gone_nodes, added)

    def _in_order(self, gone: Set[str], added: Sequence[tuple[int, Node]]) -> tuple[Node, ...]:
        """The nodes of the graph without some, and each new one behind the last node that it needs."""
        waiting = sorted(added, key=lambda one: one[0], reverse=True)
        found = []
        for place, node in enumerate((None, *self._graph.nodes), -1):
            if node is not None and node.name not in gone:
                found.append(node)
            while waiting and waiting[-1][0] <= place:
                found.append(waiting.pop()[1])
        return tuple(found)

    def _groups(self) -> tuple[dict[int, list[str]], frozenset[str]]:
        """The results that other nodes read, by the place of the last node that they need, and the names of views that stay."""
        graph, results, views = self._graph, dict[str, int](), set[str]()
        for node in graph.nodes:
            if node.name not in self._movers:
                continue
            (source, *_) = node.inputs
            is_of_root = source not in self._maps or graph.producers[source].name in views
            if node.op.is_view and (is_of_root or source in results) and self._cut.isdisjoint(node.writes):
                views.add(node.name)
                continue
            for name in node.writes:
                if self._is_read(name):
                    results[name] = max(self._places.get(read, -1) for read in self._read_by((name,))[1])
        return self._delayed(results), frozenset(views)

    def _delayed(self, results: Mapping[str, int]) -> dict[int, list[str]]:
        """The results by when they are made: those that are read late together with later ones, as many as a launch has."""
        places = {node.name: place for place, node in enumerate(self._graph.nodes)}
        groups: dict[int, list[str]] = {}
        for name, key in sorted(results.items(), key=lambda one: one[1])[::-1]:
            readers = [places[node.name] for node in self._graph.consumers.get(name, ()) if node.name not in self._movers]
            read, count = min(readers, default=len(places)), len(self._maps[name])
            free = name not in self._cut and not any(r.name in self._movers for r in self._graph.consumers.get(name, ()))
            later = (
                other
                for other, names in groups.items()
                if other == key or (free and key < other < read and count + self._count(names) <= AT_ONCE)
            )
            groups.setdefault(min(later, default=key), []).insert(0, name)
        return groups

    def _count(self, names: Sequence[str]) -> int:
        return sum(len(self._maps[name]) for name in names)

    def _is_read(self, name: str) -> bool:
        readers = self._graph.consumers.get(name, ())
        return name in self._cut or name in self._graph.output_names or any(r.name not in self._movers for r in readers)

    def _read_by(self, results: Sequence[str]) -> tuple[tuple[Node, ...], tuple[str, ...]]:
        """The nodes that move what some results are made of, in order, and all that these read from other nodes."""
        within = frozenset().union(*(self._within[name] for name in results))
        nodes = tuple(sorted((self._named[name] for name in within), key=lambda node: self._places[node.writes[0]]))
        inner = {name for node in nodes for name in node.writes}
        return nodes, tuple(dict.fromkeys(name for node in nodes for name in node.reads if name not in inner))

    def _clusters(self, groups: Mapping[int, Sequence[str]], views: frozenset[str]) -> Iterable[list[int]]:
        """The groups, those together that have a node in common: all of them are merged, or none."""
        of_nodes: dict[str, list[int]] = {}
        clusters: dict[int, list[int]] = {}  # by the identity of the list
        for key, names in groups.items():
            keys = [key]
            nodes = frozenset().union(*(self._within[name] for name in names)) - views
            for other in {id(found): found for name in nodes if (found := of_nodes.get(name)) is not None}.values():
                keys += other
                clusters.pop(id(other))
            clusters[id(keys)] = keys
            merged = (self._within[name] for one in keys for name in groups[one])
            of_nodes |= dict.fromkeys(frozenset().union(*merged) - views, keys)
        return clusters.values()

    def _joined(self, results: Sequence[str]) -> Node:
        nodes, reads = self._read_by(results)
        movers = [self._movers[node.name] for node in nodes]
        names = tuple(None if mover is None else mover.name for mover in movers)
        op = JoinedMoves(nodes, names, reads, tuple(results))
        return Node(self._graph.free_name(f"moves:{results[0]}"), op, reads, tuple(results), (), represented_by(*nodes))
