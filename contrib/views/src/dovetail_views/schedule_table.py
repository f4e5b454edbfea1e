"""The order in which nodes can run: stages by peeling off the nodes that wait for nothing else."""

from typing import TYPE_CHECKING, Any

from dovetail.command import print_table

if TYPE_CHECKING:
    from dovetail.graph import Model

__all__ = ["describe_schedule", "print_schedule"]


def describe_schedule(model: "Model") -> dict[str, Any]:
    """The stages of a model as data. Raises `GraphError` naming the nodes of a cycle."""
    from dovetail.passes import stages

    graph = model.graph
    found = stages(graph)
    waits = {
        node.name: list(dict.fromkeys(graph.producers[v].name for v in node.reads if v in graph.producers))
        for node in graph.nodes
    }
    described = [[{"node": n.name, "operator": n.op.key, "waits_for": waits[n.name]} for n in stage] for stage in found]
    readers = {name: [node.name for node in graph.consumers.get(name, ())] for name in graph.inputs}
    writers = {name: graph.producers[name].name if name in graph.producers else name for name in graph.outputs}
    return {
        "model": model.source,
        "inputs": [{"name": name, "read_by": readers[name]} for name in graph.inputs],
        "outputs": [{"name": name, "written_by": writers[name]} for name in graph.outputs],
        "stages": described,
    }


def print_schedule(described: dict[str, Any]) -> None:
    """A table of the stages with the true producers of each node."""
    stages = described["stages"]
    numbered = [(index, node) for index, stage in enumerate(stages) for node in stage]
    rows = [
        (str(number), str(index), node["node"], node["operator"], ", ".join(node["waits_for"]))
        for number, (index, node) in enumerate(numbered)
    ]
    print_table(f"{described['model']}: {len(stages)} stages", (">id", ">stage", "node", "operator", "waits for"), rows)
