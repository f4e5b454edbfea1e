"""Memory plans, in the order of one for other sizes where nothing that decides which values share memory has changed."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from operator import is_

from dovetail.dataclass import dataclass
from dovetail.device import Graph, MemoryPlan, Node, TypedNode, plan_graph, plan_regions, shares_again
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.launch import Launch, Scratch

__all__ = ["MemoryPlans"]


@dataclass(frozen=True, slots=True)
class _Known:
    """The last plan of a graph without states, and what decided it apart from sizes. Without constants, which would stay."""

    nodes: tuple[Node, ...]
    kernels: tuple[CLKernel, ...]
    names: tuple[Sequence[str], Sequence[str], Set[str]]
    plan: MemoryPlan

    def is_like(self, graph: Graph, kernels: tuple[CLKernel, ...]) -> bool:
        """Whether only sizes differ."""
        return (
            len(self.nodes) == len(graph.nodes)
            and all(map(is_, self.nodes, graph.nodes))
            and all(map(is_, self.kernels, kernels))
            and self.names == _names(graph)
        )


class MemoryPlans:
    """The memory plans of the graphs of a compilation. Threads may share it."""

    def __init__(self) -> None:
        self._known: dict[str, _Known] = {}

    def plan(
        self,
        graph: Graph,
        typed: Mapping[str, TypedNode],
        kernels: Mapping[str, CLKernel],
        launches: Mapping[str, Sequence[Launch]],
        stubs: Set[str],
    ) -> MemoryPlan:
        """The plan of a graph by regions, as buffers are, given the nodes, their kernels and launches."""

        def in_place(node: Node) -> Sequence[str]:
            return kernels[node.name].in_place(typed[node.name])

        def continued(node: Node) -> Mapping[str, str]:
            return {} if node.name in stubs else kernels[node.name].continued(typed[node.name])

        ordered = tuple([kernels[node.name] for node in graph.nodes])
        known = None if graph.states else self._known.get(graph.name)
        if known is not None and not (known.is_like(graph, ordered) and shares_again(graph, known.plan.storage, in_place)):
            known = None
        earlier = None if known is None else known.plan
        found = plan_graph(
            graph,
            in_place,
            lambda node: _scratch(launches[node.name]),
            plan=plan_regions,
            continues=continued,
            storage=None if earlier is None else earlier.storage,
            earlier=earlier,
        )
        if found.blocks and not graph.states:
            self._known[graph.name] = _Known(graph.nodes, ordered, _names(graph), replace(found, sizes=tuple))
        return found


def _names(graph: Graph) -> tuple[Sequence[str], Sequence[str], Set[str]]:
    return graph.inputs, graph.outputs, {*graph.constants}


def _scratch(launches: Sequence[Launch]) -> Sequence[int]:
    """The bytes of the node's work buffers, each once: launches share them by name."""
    found = [a for launch in launches for a in launch.places if type(a) is Scratch]
    return [*{a.value: a.nbytes for a in found}.values()] if found else ()
