"""Sub-graphs of a model: where they are, and which operators they consist of."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dovetail.cli._output import print_table

if TYPE_CHECKING:
    from dovetail.graph.graph import Graph

__all__ = ["print_subgraphs", "subgraphs_of"]


def subgraphs_of(graph: "Graph") -> list[dict[str, Any]]:
    """One entry for each sub-graph: its `path`, as reports write it, and how often each operator is in it. Outer ones first."""
    return [{"path": path, "operators": dict(Counter(n.op.key for n in inner.nodes))} for path, inner in _subgraphs(graph, "")]


def _subgraphs(graph: "Graph", prefix: str) -> "Iterator[tuple[str, Graph]]":
    for node in graph.nodes:
        for name, inner in node.op.named_subgraphs.items():
            path = f"{prefix}{node.name}/{name}"
            yield path, inner
            yield from _subgraphs(inner, f"{path}/")


def print_subgraphs(described: Sequence[Mapping[str, Any]]) -> None:
    """A table, when there are any."""
    if described:
        rows = [(one["path"], str(sum(one["operators"].values())), _listed(one["operators"])) for one in described]
        print_table("Sub-graphs", ("in", ">nodes", "operators"), rows)


def _listed(operators: Mapping[str, int]) -> str:
    return ", ".join(name if number == 1 else f"{number} {name}" for name, number in operators.items())
