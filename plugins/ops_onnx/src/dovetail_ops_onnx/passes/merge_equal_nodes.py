"""Compute equal things once: exporters write the same nodes again for every layer, above all those that compute sizes."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import AbstractOperator, Graph, Node
from dovetail.passes import represented_by

__all__ = ["merge_equal_nodes"]

Prescribed = Callable[[str, str], bool]
"""(domain, op_type) -> whether the user gave a device a kernel for operators of this name."""

SMALL = 64
"""Elements of a constant up to which its content is compared with that of others."""


def merge_equal_nodes(graph: Graph, prescribed: Prescribed = lambda domain, op_type: False) -> Graph:
    """The graph with one of all nodes that have the same operator, attributes and inputs; it represents the others.

    Shapes may be open. Constants of at most `SMALL` numbers are the same input if they have the same bytes. Random operators,
    those without a reference or composition, those for which the user gave a device a kernel, and those with
    sub-graphs stay. So do nodes that write what continues a state, or what a sub-graph reads, and graphs with operators that are
    composed of the graph around them, which must see it as the model has it. Nodes that come before what they read may stay.
    """
    if any(cls.has_compose_in() for cls in graph.op_classes):
        return graph
    held = {graph.outputs[index] for index in graph.states.values()}
    held.update(name for node in graph.nodes for inner in node.op.subgraphs for name in inner.captures)
    prescribed = cache(prescribed)
    contents = {name: _content(name, array) for name, array in graph.constants.items()}
    alike: dict[Hashable, Node] = {}
    equal: dict[Hashable, Node] = {}
    compared: set[str] = set()
    renamed: dict[str, str] = {}
    merged: dict[str, list[str]] = {}
    gone: set[int] = set()
    for node in graph.nodes:
        op = node.op
        if op.is_random or op.subgraphs or node.post_ops or not (op.has_reference() or op.has_composition()):
            continue
        if prescribed(op.domain, op.op_type):
            continue
        inputs = tuple([renamed.get(name) or contents.get(name, name) for name in node.inputs])
        key = (type(op), inputs, tuple(map(bool, node.outputs)), node.affinity)
        first = alike.setdefault(key, node)
        if first is not node:  # few are, so that attributes are compared for few
            if first.name not in compared:
                compared.add(first.name)
                equal[key, _attributes(first.op)] = first
            first = equal.setdefault((key, _attributes(op)), node)
        if first is not node and held.isdisjoint(node.writes):
            gone.add(id(node))
            renamed.update(zip(node.writes, first.writes, strict=True))
            merged.setdefault(first.name, []).extend(represented_by(node))
    if not gone:
        return graph
    nodes = tuple(_representing(node, renamed, merged.get(node.name, ())) for node in graph.nodes if id(node) not in gone)
    return graph.replace(nodes=nodes, outputs=tuple(renamed.get(name, name) for name in graph.outputs))


def _content(name: str, array: NDArray[Any]) -> Hashable:
    return (array.dtype.str, array.shape, array.tobytes()) if array.size <= SMALL and array.dtype.kind in "iufb" else name


def _attributes(op: AbstractOperator) -> Hashable:
    """The attributes by what they print: 0.0 equals -0.0."""
    return tuple([_shown(getattr(op, name)) for name in op.attributes])


def _shown(value: object) -> Hashable:
    return (value.dtype.str, value.shape, value.tobytes()) if isinstance(value, np.ndarray) else repr(value)


def _representing(node: Node, names: Mapping[str, str], others: Sequence[str]) -> Node:
    inputs = tuple([names.get(name, name) for name in node.inputs])
    if inputs == node.inputs and not others:
        return node
    origins = tuple(dict.fromkeys((*represented_by(node), *others))) if others else node.origins
    return replace(node, inputs=inputs, origins=origins)
