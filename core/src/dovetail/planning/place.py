"""Place nodes on devices: which target runs each node, and why the others do not."""

from collections.abc import Mapping, Sequence

from dovetail.devices.checked import ask
from dovetail.devices.refusals import Accepted, Refusal
from dovetail.devices.typed_node import TypedNode
from dovetail.devices.virtual import Placement
from dovetail.errors import CompileError, UnsupportedNode
from dovetail.graph.graph import Graph, Node
from dovetail.planning.options import REFERENCE_DEVICE
from dovetail.planning.plan import Target

__all__ = ["Placed", "place", "require_homes"]

Refusals = tuple[tuple[str, Refusal], ...]
Placed = Mapping[str, tuple[str, Refusals]]
"""Node name -> the device that runs it, and the refusals of those asked before."""


def place(graph: Graph, targets: Sequence[Target], placement: Placement | None = None) -> Placed:
    """For each node the target that runs it (`""` if none does), and the refusals of those preferred to it.

    Without a placement that is the first target that accepts the node; only a placement has all targets asked. Raises
    `CompileError` when it places a node where it was refused.
    """
    typed = {node.name: TypedNode.of(node, graph) for node in graph.nodes}
    if placement is None:
        return {name: _first(node, targets) for name, node in typed.items()}
    answers = {name: {target.name: ask(target.device, node) for target in targets} for name, node in typed.items()}
    homes = placement(graph, answers)
    return {name: _chosen(typed[name].node, found, homes.get(name, "")) for name, found in answers.items()}


def require_homes(graph: Graph, placed: Placed) -> None:
    """Raise `UnsupportedNode` for a node that every target refused."""
    for node in graph.nodes:
        home, refusals = placed[node.name]
        if not home:
            said = "; ".join(f"{device}: {refusal}" for device, refusal in refusals)
            types = ", ".join("-" if name == "" else str(graph.types[name]) for name in node.inputs)
            hint = "give the operator a NumPy reference" if REFERENCE_DEVICE in dict(refusals) else "let FALLBACK be True"
            raise UnsupportedNode(f"no device runs node {node} with inputs ({types}): {said}", hint=hint)


def _first(node: TypedNode, targets: Sequence[Target]) -> tuple[str, Refusals]:
    refusals: list[tuple[str, Refusal]] = []
    for target in targets:
        answer = ask(target.device, node, kernel=False)
        if isinstance(answer, Accepted):
            return target.name, tuple(refusals)
        refusals.append((target.name, answer))
    return "", tuple(refusals)


def _chosen(node: Node, answers: Mapping[str, Accepted | Refusal], home: str) -> tuple[str, Refusals]:
    if (not home and any(answers.values())) or (home and not answers.get(home)):
        accepted = ", ".join(name for name, answer in answers.items() if answer)
        raise CompileError(f"node {node} is placed on {home or 'no device'}; accepted by: {accepted or 'none'}")
    names = list(answers)
    asked = names[: names.index(home)] if home else names
    return home, tuple((name, refusal) for name in asked if isinstance(refusal := answers[name], Refusal))
