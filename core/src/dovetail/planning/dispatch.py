"""Which class runs a node when several define its operator: bound without a device, then chosen again once all is known."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from dovetail.devices.checked import ask
from dovetail.devices.contract import Device
from dovetail.devices.kernels import REFERENCE_KERNEL
from dovetail.devices.typed_node import TypedNode
from dovetail.errors import OperatorError
from dovetail.evaluate.context import node_context
from dovetail.evaluate.inference import infer_node
from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.operators.operator import Operator
from dovetail.plugins.manager import PluginManager
from dovetail.plugins.rules import (
    COMPOSITION,
    KERNEL,
    NOTHING,
    REFERENCE,
    Candidate,
    Decision,
    Suitability,
    SuitabilityOf,
    claim,
    languages,
    pin_lines,
)

__all__ = ["Dispatch"]


class Dispatch:
    """The choices of one plan. `find` is for `passes.bind`; `choose` looks again at the nodes that were bound through it.

    Nodes that were never looked up by name (made in code, or inside a composition) keep their class.
    """

    def __init__(self, plugins: PluginManager) -> None:
        self._plugins = plugins
        self._versions: dict[type[AbstractOperator], int] = {}

    def find(self, domain: str, op_type: str, version: int) -> type[Operator]:
        """The class that holds in operator set `version`. Raises as `PluginManager.operator`."""
        found = self._plugins.operator(domain, op_type, version)
        if found.translation(domain, op_type) is not None:
            return found  # its own name may have other candidates, which do not know this one
        # Where a model imports one domain in two versions, whatever holds in the older one is right for both.
        self._versions[found] = min(version, self._versions.get(found, version))
        return found

    def choose(self, graph: Graph, devices: Sequence[Device]) -> tuple[Graph, Mapping[str, int]]:
        """The typed graph with the class for each node that the rules choose for these devices, and the rule by node name."""
        rules: dict[str, int] = {}
        settled: dict[type[AbstractOperator], Decision] = {}
        nodes = []
        for node in graph.nodes:
            version, decision = self._versions.get(type(node.op)), settled.get(type(node.op))
            if decision is None and version is not None:
                decision = self._decide(node, version, graph, devices)
                if decision.is_settled:
                    settled[type(node.op)] = decision
            if decision is not None:
                rules[node.name] = decision.rule
            nodes.append(node if decision is None else _moved(node, graph, decision))
        moved = tuple(nodes)
        return graph if moved == graph.nodes else graph.replace(nodes=moved), rules

    def _decide(self, node: Node, version: int, graph: Graph, devices: Sequence[Device]) -> Decision:
        return self._plugins.decide(node.op.domain, node.op.op_type, version, _suitability_of(node, graph, devices))


def _with_class(node: Node, cls: type[Operator]) -> Node:
    if type(node.op) is cls:
        return node
    with node_context(node):
        # The rules compare classes of one schema only.
        return replace(node, op=cls(**{name: getattr(node.op, name) for name in node.op.attributes}))


def _moved(node: Node, graph: Graph, decision: Decision) -> Node:
    """The node with the class that was chosen. Raises `OperatorError` when that one infers other types."""
    moved = _with_class(node, decision.winner.operator)
    if moved is not node:
        inferred = infer_node(moved, [graph.type_of(name) for name in node.inputs])
        for name, theirs in zip(node.writes, inferred, strict=True):
            if (theirs.dtype, theirs.shape) != (graph.types[name].dtype, graph.types[name].shape):
                before = next(c.provider for c in decision.candidates if c.operator is type(node.op))
                raise OperatorError(
                    f"node {node}: output {name!r} is {theirs} by {decision.winner.provider}, {graph.types[name]} by {before}",
                    hint=f"choose one: {' or '.join(pin_lines(decision.winner.operator, decision.candidates))}",
                )
    return moved


def _suitability_of(node: Node, graph: Graph, devices: Sequence[Device]) -> SuitabilityOf:
    """How a class suits a node, by what the devices answer."""
    first = next((t for name in node.inputs if (t := graph.type_of(name)) is not None), None)

    def suitability_of(candidate: Candidate) -> Suitability:
        typed = TypedNode.of(_with_class(node, candidate.operator), graph)
        grades = tuple(_grade(typed, device) for device in devices)
        languages_known = languages(devices[0].info.type)
        claimed = claim(candidate.operator, languages_known, first.dtype.value if first else "")
        return Suitability(grades, claimed.dtypes if grades[0] == KERNEL else None)

    return suitability_of


def _grade(node: TypedNode, device: Device) -> int:
    answer = ask(device, node)
    if answer and getattr(answer, "kernel", "") != REFERENCE_KERNEL:
        return KERNEL
    if node.op.has_composition():
        return COMPOSITION
    return REFERENCE if answer else NOTHING
