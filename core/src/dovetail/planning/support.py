"""The kernel for each node of a model on a device, found without compiling."""

from collections.abc import Callable, Sequence

from dovetail.dataclass import dataclass
from dovetail.devices.checked import ask as answer_of
from dovetail.devices.kernels import REFERENCE_KERNEL
from dovetail.devices.refusals import Accepted, Reason, Refusal
from dovetail.devices.typed_node import TypedNode
from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.graph.rewriting import represented_by
from dovetail.internal.opaque import OpaqueOperator
from dovetail.passes.graph_pass import Notes
from dovetail.planning.deferred import kernel_on_host, why_on_host
from dovetail.planning.options import REFERENCE_DEVICE
from dovetail.planning.place import place
from dovetail.planning.plan import Target
from dovetail.planning.planner import Planner

__all__ = ["NodeSupport", "ask"]


@dataclass(frozen=True, slots=True)
class NodeSupport:
    """How one node of a model would run.

    `device` runs it, or refuses it with `refusal`. `way` is `kernel` (one of the device package), `own kernel` (a kernel source
    in the operator's class), `custom kernel` (one that the user gave the device for this operator's name), `composition` (of
    several others) or `reference`; empty for a refusal. `kernels` names the kernels, several for a composition; `provider` is
    the distribution that brings them: for a composition the one that defines the operator.
    """

    device: str
    way: str
    kernels: tuple[str, ...]
    provider: str
    refusal: Refusal | None = None


Providers = Callable[[type[AbstractOperator]], str]


def ask(graph: Graph, planner: Planner) -> dict[str, NodeSupport]:
    """The answer for each node of a graph with static inputs, by name, in the plan before post-ops are merged.

    A node that is expanded or merged answers for what replaces it: with a refusal as soon as one part is refused. Nodes that
    are computed while planning are left out.
    """
    targets, provider_of = planner.targets, planner.provider_of
    notes = Notes()
    known, after = planner.analyze(planner.prepare(graph), notes)
    planned = planner.optimise(known, notes)
    answers: dict[str, NodeSupport] = {}
    if after is not None:
        answers.update({node.name: _later(node, targets, provider_of) for node in (*after.ready, *after.rest.nodes)})
    parts: dict[str, list[tuple[Node, NodeSupport]]] = {}
    homes = None if planner.placement is None else place(planned, targets, planner.placement)
    for node in planned.nodes:
        chosen = targets if homes is None else [t for t in targets if homes[node.name][0] in (t.name, "")]
        found = _placed(node, planned, chosen, provider_of)
        for origin in represented_by(node):
            parts.setdefault(origin, []).append((node, found))
    origins = {node.name: node for node in known.nodes}
    answers.update({name: _joined(origins.get(name), found, provider_of) for name, found in parts.items()})
    return answers


def _placed(node: Node, graph: Graph, targets: Sequence[Target], provider_of: Providers) -> NodeSupport:
    """By the first target that accepts the node, or the refusal of the last."""
    typed = TypedNode.of(node, graph)
    refusal = Refusal(Reason.OPERATOR, "no device was asked")
    for target in targets:
        answer = answer_of(target.device, typed)
        if isinstance(answer, Accepted):
            return _accepted(node, answer, target, provider_of)
        refusal = answer
    return NodeSupport(targets[-1].name, "", (), "", refusal)


def _accepted(node: Node, answer: Accepted, target: Target, provider_of: Providers) -> NodeSupport:
    own = answer.from_operator or answer.kernel == REFERENCE_KERNEL
    if own:
        way = "reference" if answer.kernel == REFERENCE_KERNEL else "own kernel"
    else:
        way = "custom kernel" if isinstance(node.op, OpaqueOperator) else "kernel"
    return NodeSupport(target.name, way, (answer.kernel,), _definer(node, provider_of) if own else target.provider)


def _definer(node: Node, provider_of: Providers) -> str:
    return provider_of(type(node.op.known or node.op if isinstance(node.op, OpaqueOperator) else node.op))


def _later(node: Node, targets: Sequence[Target], provider_of: Providers) -> NodeSupport:
    """Data decides about the node: it runs on the host."""
    if not any(target.name == REFERENCE_DEVICE for target in targets):
        return NodeSupport(targets[-1].name, "", (), "", Refusal(Reason.DYNAMIC, why_on_host(node)))
    return NodeSupport(REFERENCE_DEVICE, "reference", (kernel_on_host(node),), _definer(node, provider_of))


def _joined(origin: Node | None, parts: Sequence[tuple[Node, NodeSupport]], provider_of: Providers) -> NodeSupport:
    """One answer for a node of the model from those for its replacements."""
    refused = next((found for _, found in parts if found.refusal is not None), None)
    if refused is not None:
        return refused
    first = parts[0][1]
    if origin is None or not origin.op.has_composition() or any(node.op.key == origin.op.key for node, _ in parts):
        return first
    if any(len(node.origins) > 1 for node, _ in parts):
        return first  # merged with its neighbours, not expanded
    kernels = tuple(dict.fromkeys(kernel for _, found in parts for kernel in found.kernels))
    return NodeSupport(first.device, "composition", kernels, provider_of(type(origin.op)))
