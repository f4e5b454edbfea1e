"""Inline: the nodes of a sub-graph in the place of the node that holds it."""

import dataclasses
from collections.abc import Collection, Mapping

import numpy as np
from numpy.typing import NDArray

from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.graph.rewriting import rename_reads, represented_by
from dovetail.internal.copy import Copy
from dovetail.names import free_name

__all__ = ["chosen_branch", "inlined"]


def chosen_branch(node: Node, constants: Mapping[str, NDArray[np.generic]]) -> Graph | None:
    """The sub-graph that constant inputs of the node select, such as a branch of `If`; None where nothing is decided yet."""
    if not node.op.subgraphs:
        return None
    branch = node.op.chosen_graph([constants.get(name) for name in node.inputs])
    if branch is None or branch.inputs or len(node.outputs) > len(branch.outputs):
        return None  # the error is raised where the node runs
    # Such operators know the values of their graph by the names that these have there.
    return None if any(inner.op.has_compose_in() for inner in branch.nodes) else branch


def inlined(node: Node, body: Graph, taken: Collection[str]) -> Graph:
    """The body writing to the node's outputs, with names of its own, none of which is in `taken`.

    Inner values are called `<node>/<inner>`; what the body reads from outside keeps its name. An output that no inner node
    writes, or that is wanted twice, is copied by a Copy.
    """
    own = {*body.inputs, *body.constants, *body.producers}
    inner_names = {*own, *(n.name for n in body.nodes)}
    prefix = free_name(node.name, lambda scope: any(f"{scope}/{name}" in taken for name in inner_names)) + "/"
    names = {name: prefix + name for name in own}
    copies = []
    # A node may leave out trailing outputs of its body.
    for old, name in zip(body.outputs, node.outputs, strict=False):
        if name and old in body.producers and names[old] == prefix + old:
            names[old] = name
        elif name:
            copies.append((old, name))
    nodes = [_renamed(n, names, prefix, node) for n in body.nodes]
    nodes += [Node(f"{prefix}copy:{name}", Copy(), (names.get(old, old),), (name,), (), (node.name,)) for old, name in copies]
    return body.replace(
        nodes=tuple(nodes),
        inputs=tuple(dict.fromkeys((*body.captures, *(names[n] for n in body.inputs)))),
        outputs=node.writes,
        constants={names[n]: array for n, array in body.constants.items()},
        types={names[n]: t for n, t in body.types.items() if n in own},
    )


def _renamed(node: Node, names: Mapping[str, str], prefix: str, holder: Node) -> Node:
    read = rename_reads(node, names)
    return dataclasses.replace(
        read,
        name=prefix + node.name,
        op=_with_captures(node.op, names),
        outputs=tuple(names[n] if n else "" for n in node.outputs),
        origins=represented_by(holder),
    )


def _with_captures(op: AbstractOperator, names: Mapping[str, str]) -> AbstractOperator:
    """The operator with sub-graphs that read other values from outside: old name -> new name."""
    if not op.subgraphs:
        return op
    graphs = {n: _recaptured(g, names) for n in op.attributes if isinstance(g := getattr(op, n), Graph)}
    return op.replace(**graphs)


def _recaptured(graph: Graph, names: Mapping[str, str]) -> Graph:
    outer = {name: names[name] for name in graph.captures if name in names}
    if not outer:
        return graph
    nodes = tuple(
        dataclasses.replace(rename_reads(n, outer), op=_with_captures(n.op, outer)) if set(n.reads) & outer.keys() else n
        for n in graph.nodes
    )
    return graph.replace(nodes=nodes, outputs=tuple(outer.get(n, n) for n in graph.outputs))
