"""The order in which nodes can run: stages by peeling roots, in the words of OCL-ENGINE's own printout."""

from typing import TYPE_CHECKING, Any

from dovetail.cli._output import print_table, print_text, remark

if TYPE_CHECKING:
    from dovetail.graph.model import Model

__all__ = ["describe_schedule", "print_schedule"]

_LINE = "<-------------------------------------->"
_WIDEST = 64
"""Nodes of the largest matrix that is shown."""

Matrix = list[list[bool]]


def describe_schedule(model: "Model") -> dict[str, Any]:
    """What `explain --schedule` tells of a model. Raises `GraphError` naming the nodes of a cycle."""
    from dovetail.graph.schedule import stages

    graph = model.graph
    found = stages(graph)
    waits = {
        node.name: list(dict.fromkeys(graph.producers[v].name for v in node.reads if v in graph.producers))
        for node in graph.nodes
    }
    told = [[{"node": n.name, "operator": n.op.key, "waits_for": waits[n.name]} for n in stage] for stage in found]
    readers = {name: [node.name for node in graph.consumers.get(name, ())] for name in graph.inputs}
    writers = {name: graph.producers[name].name if name in graph.producers else name for name in graph.outputs}
    return {
        "model": model.source,
        "inputs": [{"name": name, "read_by": readers[name]} for name in graph.inputs],
        "outputs": [{"name": name, "written_by": writers[name]} for name in graph.outputs],
        "stages": told,
    }


def print_schedule(described: dict[str, Any]) -> None:
    """The matrices, the events, and a table of the true producers."""
    stages: list[list[str]] = [[node["node"] for node in stage] for stage in described["stages"]]
    layers = [name for stage in stages for name in stage]
    number = len(layers) + len(described["inputs"]) + len(described["outputs"])
    if number <= _WIDEST:
        _print_matrix(_edges(described, layers, with_ends=True))
        _print_matrix(_edges(described, layers, with_ends=False))
    else:
        remark(f"The matrices of {number} nodes are left out; they are shown for up to {_WIDEST}.")
    print_text("depend of event is ")
    sizes = [len(described["inputs"]), *map(len, stages), len(described["outputs"])]
    for line in _events(sizes):
        print_text(line)
    print_text()
    first = len(described["inputs"])
    ids = {name: first + i for i, name in enumerate(layers)}
    rows = [
        (str(ids[node["node"]]), str(index), node["node"], node["operator"], ", ".join(node["waits_for"]))
        for index, stage in enumerate(described["stages"])
        for node in stage
    ]
    print_table(f"{described['model']}: {len(stages)} stages", (">id", ">stage", "node", "operator", "waits for"), rows)


def _edges(described: dict[str, Any], layers: list[str], *, with_ends: bool) -> Matrix:
    """Row i, column j: node j reads from node i. With the ends: inputs first, outputs last."""
    inputs, outputs = (described["inputs"], described["outputs"]) if with_ends else ([], [])
    place = {("node", name): len(inputs) + i for i, name in enumerate(layers)}
    last = len(inputs) + len(layers)
    matrix = [[False] * (last + len(outputs)) for _ in range(last + len(outputs))]
    for stage in described["stages"]:
        for node in stage:
            for producer in node["waits_for"]:
                matrix[place["node", producer]][place["node", node["node"]]] = True
    at = {given["name"]: i for i, given in enumerate(inputs)}
    for given in inputs:
        for reader in given["read_by"]:
            matrix[at[given["name"]]][place["node", reader]] = True
    for index, result in enumerate(outputs):
        source = place.get(("node", result["written_by"]), at.get(result["name"]))
        if source is not None:
            matrix[source][last + index] = True
    return matrix


def _print_matrix(matrix: Matrix) -> None:
    print_text(_LINE)
    print_text("DirectedGraph Mat:")
    for row in matrix:
        print_text("".join("True , " if edge else "False, " for edge in row))
    print_text(_LINE)


def _events(sizes: list[int]) -> list[str]:
    """For each node, stage by stage: it waits for `dpnum` events from number `dphead` on and gives event `thisid`; -1: none."""
    lines: list[str] = []
    before = 0
    for index, members in enumerate(sizes):
        head = len(lines) - before
        for _ in range(members):
            this = -1 if index == len(sizes) - 1 else len(lines)
            lines.append(f"node={len(lines)}--->[dpnum={before},dphead={head if before else -1},thisid={this}]")
        before = members
    return lines
