"""Replacing one node by a body of nodes: names, checks, and the outputs."""

import dataclasses
from bisect import bisect_left
from collections.abc import Mapping, Sequence

from dovetail.errors import OperatorError
from dovetail.graph.graph import Graph, Node
from dovetail.graph.rewriting import rename_reads, represented_by
from dovetail.graph.types import TensorType
from dovetail.names import free_name

__all__ = ["check_types", "free_scope", "write_to"]


def free_scope(name: str, names: Sequence[str]) -> str:
    """`name`, or `name_1`, ... so that no name of the sorted `names` starts with the scope and a slash: exporters use slashes."""

    def is_taken(scope: str) -> bool:
        at = bisect_left(names, f"{scope}/")
        return at < len(names) and names[at].startswith(f"{scope}/")

    return free_name(name, is_taken)


def check_types(pairs: Sequence[tuple[str, str]], inner: Mapping[str, TensorType], outer: Mapping[str, TensorType]) -> None:
    """Raise `OperatorError` where a composition gives another type than `infer`; `pairs` are its names and the node's."""
    for index, (composed, name) in enumerate(pairs):
        # Nodes after this one were typed by what infer() said.
        if inner[composed] != outer[name]:
            raise OperatorError(f"output {index}: compose() gives {inner[composed]}, infer() says {outer[name]}")


def write_to(body: Graph, outputs: Sequence[tuple[str, str]], origin: Node, scope: str) -> Graph:
    """The body with inner values renamed to the outer outputs; a value that no inner node writes is copied by an Copy."""
    names: dict[str, str] = {}
    copies = []
    for inner, name in outputs:
        if inner in body.producers and inner not in names:
            names[inner] = name
        else:
            from dovetail.internal.copy import Copy  # here, because few results are wanted twice

            copies.append(Node(f"{scope}/copy:{name}", Copy(), (names.get(inner, inner),), (name,)))
    renamed = [rename_reads(n, names) for n in body.nodes]
    nodes = [
        dataclasses.replace(n, outputs=tuple(names.get(o, o) for o in n.outputs), origins=represented_by(origin))
        for n in (*renamed, *copies)
    ]
    types = {names.get(n, n): t for n, t in body.types.items()}
    types.update({name: body.types[inner] for inner, name in outputs})
    return body.replace(nodes=tuple(nodes), outputs=tuple(name for _, name in outputs), types=types)
