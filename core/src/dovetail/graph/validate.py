"""Validate: is this a graph at all? For graphs that come from files, before any other pass trusts them."""

from collections.abc import Iterator

from dovetail.errors import GraphError
from dovetail.graph.graph import Graph, Node
from dovetail.graph.schedule import schedule
from dovetail.names import printable

__all__ = ["validate"]


def validate(graph: Graph) -> None:
    """Check the graph and its sub-graphs: every name defined once, every value that is read defined, no cycle, some output.

    Nodes may be in any order. A graph without nodes is one whose outputs are inputs or constants. A sub-graph may read
    values of the graphs around it, and may define a name of theirs again for itself. Raises `GraphError` naming the node.
    """
    if not graph.outputs:
        raise GraphError("the graph has no outputs", hint="give it at least one")
    _check_names(graph, "")
    if not graph.is_in_order:  # the order of most files, in which nothing can be missing or go round
        _check_reads(graph)
        schedule(graph)
    waiting = list(_subgraphs(graph))
    while waiting:
        holder, inner = waiting.pop()
        where = f"in a sub-graph of node {holder}: "
        _check_names(inner, where)
        try:
            schedule(inner.replace(inputs=(*inner.inputs, *inner.captures)))
        except GraphError as error:
            raise GraphError(where + error.message, hint=error.hint) from None
        waiting += _subgraphs(inner)


def _subgraphs(graph: Graph) -> Iterator[tuple[Node, Graph]]:
    return ((node, inner) for node in graph.nodes for inner in node.op.subgraphs)


def _check_names(graph: Graph, where: str) -> None:
    values = [*graph.inputs, *graph.constants, *(name for node in graph.nodes for name in node.writes)]
    nodes = {node.name for node in graph.nodes}
    if len(nodes) < len(graph.nodes) or len({*values}) < len(values) or "" in nodes or "" in values or "" in graph.outputs:
        _refuse_names(graph, where)


def _refuse_names(graph: Graph, where: str) -> None:
    """Raise `GraphError` for the first name that is missing or defined twice."""
    defined: dict[str, str] = {}
    nodes: set[str] = set()
    for name in graph.inputs:
        _define(defined, name, "a graph input", where)
    for name in graph.constants:
        _define(defined, name, "a constant", where)
    for node in graph.nodes:
        if not node.name or node.name in nodes:
            raise GraphError(
                f"{where}two nodes have the name '{printable(node.name)}'" if node.name else f"{where}a node has no name"
            )
        nodes.add(node.name)
        for name in node.outputs:
            if name in defined:
                raise GraphError(
                    f"{where}node {node} defines '{printable(name)}', which is {_earlier(graph, name, defined)} already"
                )
            if name:
                defined[name] = ""
    if "" in graph.outputs:
        raise GraphError(f"{where}a graph output has no name")


def _define(defined: dict[str, str], name: str, what: str, where: str) -> None:
    if not name:
        raise GraphError(f"{where}{what} has no name")
    if name in defined:
        raise GraphError(f"{where}'{printable(name)}' is {defined[name]} already and is defined again as {what}")
    defined[name] = what


def _earlier(graph: Graph, name: str, defined: dict[str, str]) -> str:
    return defined[name] or f"an output of node {next(node for node in graph.nodes if name in node.outputs)}"


def _check_reads(graph: Graph) -> None:
    missing = set(graph.captures)
    if not missing:
        return
    for node in graph.nodes:
        for name in node.reads:
            if name in missing:
                reader = f"node {node}" if name in node.inputs else f"node {node}, in {_inner_reader(node, name)},"
                raise GraphError(f"{reader} reads '{printable(name)}', which nothing defines")
    name = next(name for name in graph.outputs if name in missing)
    hint = "it is not an input or constant either"
    raise GraphError(f"the graph output '{printable(name)}' is not produced by any node", hint=hint)


def _inner_reader(node: Node, name: str) -> str:
    found = (inner for graph in node.op.subgraphs for inner in graph.nodes if name in inner.reads)
    return next((f"node {inner} of its sub-graph" for inner in found), "its sub-graph's outputs")
