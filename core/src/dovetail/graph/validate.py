"""Validate: is this a graph at all? For graphs that come from files, before any other pass trusts them."""

import reprlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from dovetail.errors import GraphError
from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.graph.schedule import schedule
from dovetail.graph.types import TensorType
from dovetail.names import printable

__all__ = ["check_parts", "validate"]


def check_parts(graph: Graph, typed: Collection[str] | None = None) -> None:
    """Check the types of a graph's parts, for graphs that plugins make. Raises `GraphError`. Sub-graphs are not entered.

    `typed` has the names that must have types; None for all inputs and constants.
    """
    if not isinstance(graph, Graph):
        raise GraphError(f"the graph is {reprlib.repr(graph)}; accepted: a Graph")
    for name, kind in (("nodes", Node), ("inputs", str), ("outputs", str)):
        _check_tuple(f"the {name} of the graph", getattr(graph, name), kind)
    if not _are_usual(graph.nodes):
        for node in graph.nodes:
            _check_node(node)
    _check_values("constants", graph.constants, np.ndarray)
    _check_values("types", graph.types, TensorType)
    for name in (*graph.inputs, *graph.constants) if typed is None else typed:
        if name not in graph.types:
            raise GraphError(f"the graph has no type for '{printable(name)}'", hint="every input and constant has one")


def _are_usual(nodes: Sequence[Node]) -> bool:
    """True when all names are text: one look at all of them, a tenth of the time of one at each node."""
    sides = [side for node in nodes for side in (node.inputs, node.outputs)]
    if not {*map(type, sides)} <= {tuple}:
        return False
    names = chain([node.name for node in nodes], *sides)
    return {*map(type, names)} <= {str} and all(isinstance(node.op, AbstractOperator) for node in nodes)


def _check_node(node: Node) -> None:
    if not isinstance(node.op, AbstractOperator) or not isinstance(node.name, str):
        raise GraphError(f"a node has the name {reprlib.repr(node.name)} and the operator {reprlib.repr(node.op)}")
    _check_tuple(f"the inputs of node {node}", node.inputs, str)
    _check_tuple(f"the outputs of node {node}", node.outputs, str)


def _check_tuple(what: str, given: Any, kind: type) -> None:
    accepted = f"accepted: a tuple of {kind.__name__}"
    if not isinstance(given, (tuple, list)):
        raise GraphError(f"{what} are {reprlib.repr(given)}; {accepted}")
    if not {*map(type, given)} <= {kind} and (wrong := [one for one in given if not isinstance(one, kind)]):
        raise GraphError(f"{what} have {reprlib.repr(wrong[0])}; {accepted}")


def _check_values(name: str, given: Any, kind: type) -> None:
    if not isinstance(given, Mapping):
        raise GraphError(f"the {name} of the graph are {reprlib.repr(given)}; accepted: a mapping")
    if {*map(type, given)} <= {str} and {*map(type, given.values())} <= {kind}:
        return
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, kind):
            raise GraphError(f"the {name} of the graph have {reprlib.repr(value)} for {key!r:.100}; accepted: {kind.__name__}")


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
