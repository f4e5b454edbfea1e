"""Schedule: order the nodes by peeling the set of roots again and again (OCL-ENGINE's method)."""

from dovetail.errors import GraphError
from dovetail.graph.graph import Graph, Node
from dovetail.names import printable

__all__ = ["schedule", "stages"]


def schedule(graph: Graph) -> Graph:
    """The graph with its nodes in an order in which every value is written before it is read.

    A graph that is in order already keeps it. Raises `GraphError` naming the nodes of a cycle, or the value that nothing defines.
    """
    if graph.is_in_order:
        return graph
    return graph.replace(nodes=tuple(node for stage in stages(graph) for node in stage))


def stages(graph: Graph) -> tuple[tuple[Node, ...], ...]:
    """The nodes in stages: each stage needs only values of earlier ones, and every node is in the first stage possible.

    Within a stage the order is that of the graph. Raises `GraphError` as `schedule` does.
    """
    _check_defined(graph)
    producers, waiting = graph.producers, {}
    readers: dict[int, list[int]] = {}
    index_of = {id(node): i for i, node in enumerate(graph.nodes)}
    for i, node in enumerate(graph.nodes):
        sources = {index_of[id(producers[name])] for name in node.reads if name in producers}
        waiting[i] = len(sources)
        for source in sources:
            readers.setdefault(source, []).append(i)
    found: list[tuple[Node, ...]] = []
    roots = [i for i, count in waiting.items() if count == 0]
    done = 0
    while roots:
        found.append(tuple(graph.nodes[i] for i in roots))
        done += len(roots)
        ready = []
        for root in roots:
            for reader in readers.get(root, ()):
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    ready.append(reader)
        roots = sorted(ready)
    if done < len(graph.nodes):
        raise GraphError(_cycle_message(graph, {i for i, count in waiting.items() if count > 0}))
    return tuple(found)


def _check_defined(graph: Graph) -> None:
    for node in graph.nodes:
        for name in node.reads:
            if name in graph.captures:
                raise GraphError(f"node {node} reads '{printable(name)}', which nothing defines")
    for name in graph.captures:
        raise GraphError(f"the graph output '{printable(name)}' is not produced by any node")


def _cycle_message(graph: Graph, blocked: set[int]) -> str:
    # Every blocked node has a blocked producer, so walking backwards must come round.
    index_of = {name: i for i in blocked for name in graph.nodes[i].writes}
    path: list[int] = [min(blocked)]
    seen = {path[0]}
    while True:
        previous = next(index_of[name] for name in graph.nodes[path[-1]].reads if name in index_of)
        if previous in seen:
            break
        path.append(previous)
        seen.add(previous)
    cycle = path[path.index(previous) :][::-1]
    shown = [str(graph.nodes[i]) for i in cycle[:10]]
    more = f" -> ... ({len(cycle)} nodes)" if len(cycle) > 10 else ""
    return f"the graph has a cycle: {' -> '.join(shown)}{more} -> {shown[0]}"
