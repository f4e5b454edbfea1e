"""Making the report of a plan from what its devices say of their nodes."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from dovetail.devices.checked import reports_of
from dovetail.devices.contract import Executable
from dovetail.devices.memory import MemoryPlan
from dovetail.graph.graph import AbstractOperator, Graph, Node
from dovetail.internal.reorder import Reorder
from dovetail.passes.graph_pass import Notes
from dovetail.planning.deferred import kernel_on_host
from dovetail.planning.estimates import flops
from dovetail.planning.options import REFERENCE_DEVICE
from dovetail.planning.partition import Part
from dovetail.planning.place import Placed
from dovetail.planning.plan import Target
from dovetail.planning.report import NodePlacement, PlanReport, ValuePlacement

__all__ = ["nothing", "report_of", "with_nodes_on_host"]

ProviderOf = Callable[[type[AbstractOperator]], str]
"""Names the distribution that defines an operator class."""


def report_of(
    parts: Sequence[Part],
    executables: Sequence[Executable],
    by_name: Mapping[str, Target],
    placed: Placed,
    notes: Notes,
    provider_of: ProviderOf,
    seconds: Mapping[str, float],
) -> PlanReport:
    """The report of a plan whose parts were compiled in `seconds`, by step."""
    nodes, memory = list[NodePlacement](), dict[str, int]()
    for part, executable in zip(parts, executables, strict=True):
        nodes += _placements(part, executable, by_name[part.device], placed, notes, provider_of)
        memory[part.device] = memory.get(part.device, 0) + executable.memory.peak
    reorders = sum(isinstance(node.op, Reorder) for part in parts for node in part.graph.nodes)
    passes, remarks = tuple(notes.passes.values()), tuple(note for executable in executables for note in executable.notes)
    return PlanReport(tuple(nodes), len(parts), memory, seconds, reorders, passes=passes, notes=remarks)


def with_nodes_on_host(report: PlanReport, nodes: Sequence[Node], deferred: int, provider_of: ProviderOf) -> PlanReport:
    """The report with the nodes that the host runs after the steps of the plan; `deferred` ones are planned later."""
    on_host = (
        NodePlacement(n.name, n.op.key, REFERENCE_DEVICE, kernel_on_host(n), provider_of(type(n.op)), n.origins) for n in nodes
    )
    return replace(report, nodes=(*report.nodes, *on_host), deferred=deferred)


def nothing() -> PlanReport:
    """The report of a plan without parts."""
    return PlanReport((), 0)


def _placements(
    part: Part, executable: Executable, target: Target, placed: Placed, notes: Notes, provider_of: ProviderOf
) -> Iterator[NodePlacement]:
    """The entries of the nodes of a part, as its device reports them."""
    nodes, memory = {node.name: node for node in part.graph.nodes}, executable.memory
    for said in reports_of(part.device, executable, nodes):
        node = nodes[said.name]
        yield NodePlacement(
            said.name,
            said.op,
            part.device,
            said.kernel,
            provider_of(type(node.op)) if said.from_operator else target.provider,
            node.origins,
            said.post_ops,
            (*placed.get(said.name, ("", ()))[1], *said.refusals),
            notes.stops.get(said.name),
            # A node of a composition counts as the node that was chosen.
            next((notes.rules[name] for name in (said.name, *node.origins[:1]) if name in notes.rules), 0),
            tuple([_value(name, part.graph, memory) for name in node.reads]),
            tuple([_value(name, part.graph, memory) for name in node.writes]),
            flops=flops(node, part.graph),
        )


def _value(name: str, graph: Graph, plan: MemoryPlan) -> ValuePlacement:
    return ValuePlacement(name, graph.types[name], plan.offsets.get(plan.storage.get(name, name)))
