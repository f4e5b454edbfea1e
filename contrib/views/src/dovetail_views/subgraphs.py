"""Sub-graphs of a model: where they are, which operators they consist of, and how devices run these."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from dovetail.command import DEFAULT_DEVICE, print_table
from dovetail.errors import DovetailError

if TYPE_CHECKING:
    from dovetail.graph import Graph, Model
    from dovetail.runtime import Core, NodePlacement

__all__ = ["planned_subgraphs", "print_subgraphs", "subgraphs_of"]


def subgraphs_of(graph: "Graph") -> list[dict[str, Any]]:
    """One entry for each sub-graph: its `path`, as reports write it, and how often each operator is in it. Outer ones first."""
    return [{"path": path, "operators": dict(Counter(n.op.key for n in inner.nodes))} for path, inner in _subgraphs(graph, "")]


def _subgraphs(graph: "Graph", prefix: str) -> "Iterator[tuple[str, Graph]]":
    for node in graph.nodes:
        for name, inner in node.op.named_subgraphs.items():
            path = f"{prefix}{node.name}/{name}"
            yield path, inner
            yield from _subgraphs(inner, f"{path}/")


def planned_subgraphs(core: "Core", model: "Model", properties: Mapping[str, Any]) -> list[dict[str, Any]]:
    """As `subgraphs_of`, with `nodes`: those of the plan on the default device, for the types that the model declares."""
    found = subgraphs_of(model.graph)
    placed: Sequence[NodePlacement] = ()
    if found:
        # The rows of the devices have the reason of an error.
        with suppress(DovetailError), core.compile_model(model, DEFAULT_DEVICE, properties) as compiled:
            compiled.plan_subgraphs()
            placed = compiled.report().nodes
    for one in found:
        one["nodes"] = [
            {"node": n.name, "operator": n.op, "device": n.device, "kernel": n.kernel, "post_ops": list(n.post_ops)}
            for n in placed
            if n.holder == one["path"]
        ]
    return found


def print_subgraphs(described: Sequence[Mapping[str, Any]]) -> None:
    """A table, when there are any."""
    if described:
        rows = [(one["path"], str(sum(one["operators"].values())), _listed(one["operators"])) for one in described]
        print_table("Sub-graphs", ("in", ">nodes", "operators"), rows)
    nodes = [(one["path"], node) for one in described for node in one.get("nodes", ())]
    if nodes:
        kernels = [" + ".join((n["kernel"], *n["post_ops"])) for _, n in nodes]
        cells = [(path, n["node"], n["operator"], n["device"], kernel) for (path, n), kernel in zip(nodes, kernels, strict=True)]
        print_table("Nodes of sub-graphs", ("in", "node", "operator", "device", "kernel"), cells)


def _listed(operators: Mapping[str, int]) -> str:
    return ", ".join(name if number == 1 else f"{number} {name}" for name, number in operators.items())
