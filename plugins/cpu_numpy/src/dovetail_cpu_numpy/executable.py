"""A compiled graph: a kernel for each node, prepared weights and a memory plan."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import (
    DType,
    Executable,
    Graph,
    MemoryPlan,
    NodeReport,
    OutOfMemory,
    Refusal,
    TypedNode,
    phase,
    plan_graph,
)
from dovetail.locks import cached_property
from dovetail_cpu_numpy.kernel import NumpyKernel
from dovetail_cpu_numpy.launch import Array, Spec
from dovetail_cpu_numpy.memory import ALIGNMENT, packed
from dovetail_cpu_numpy.post_ops import chain_scratch
from dovetail_cpu_numpy.reorder import in_layout
from dovetail_cpu_numpy.request import NumpyRequest

__all__ = ["NumpyExecutable", "Placement"]


@dataclass(frozen=True, slots=True)
class Placement:
    """A node with the kernel that runs it, and why those before it in the list do not."""

    node: TypedNode
    kernel: NumpyKernel
    refusals: tuple[tuple[str, Refusal], ...]

    @property
    def in_place(self) -> Sequence[str]:
        """The inputs in whose memory output 0 may be written: those that the kernel names and that have its type."""
        if not self.node.node.outputs[0]:
            return ()
        result, given = self.node.outputs[0], self.node.inputs
        if result.dtype is DType.STRING:
            return ()
        return [self.node.node.inputs[index] for index in self.kernel.in_place(self.node) if given[index] == result]

    @property
    def chain_scratch(self) -> Sequence[Spec]:
        """The temporaries of the post-ops."""
        return chain_scratch(self.node.post_ops, self.node.outputs[0]) if self.node.post_ops else ()

    @property
    def scratch_blocks(self) -> Sequence[int]:
        """Bytes of the one block that lives while the node runs. The chain runs last, so it uses the kernel's scratch again."""
        nbytes = max(packed(self.kernel.scratch(self.node)), packed(self.chain_scratch))
        return (nbytes,) if nbytes else ()

    @property
    def report(self) -> NodeReport:
        """The plan's report on the node."""
        node = self.node.node
        chain, own = self.kernel.chain(self.node), self.kernel.from_operator
        return NodeReport(node.name, node.op.key, self.kernel.name, own, chain, node.origins, self.refusals)


def _prepared(placement: Placement) -> Any:
    with phase(placement.node.name, "prepare", kernel=placement.kernel.name):
        return placement.kernel.prepare(placement.node)


class NumpyExecutable(Executable):
    """A graph with a kernel for each node, prepared weights and a memory plan; shared by its requests."""

    def __init__(self, graph: Graph, placements: tuple[Placement, ...]) -> None:
        self.graph = graph
        self.placements = placements
        by_name = {p.node.name: p for p in placements}
        self.memory: MemoryPlan = plan_graph(
            graph,
            lambda n: by_name[n.name].in_place,
            lambda n: by_name[n.name].scratch_blocks,
            ALIGNMENT,
            continues=lambda n: by_name[n.name].kernel.continued(by_name[n.name].node),
        )
        self.constants: Mapping[str, Array] = {name: in_layout(a, graph.types[name]) for name, a in graph.constants.items()}
        with np.errstate(all="ignore"):
            self.states = tuple(_prepared(p) for p in placements)

    @cached_property
    def reports(self) -> tuple[NodeReport, ...]:  # type: ignore[override]  # made when read: few plans are looked at
        """One for each node that runs, in execution order."""
        return tuple(p.report for p in self.placements)

    def create_request(self) -> "NumpyRequest":
        """A new request with a separate arena. Raises `OutOfMemory`."""
        try:
            return NumpyRequest(self)
        except MemoryError as error:
            raise OutOfMemory(f"NUMPY: a request needs {self.memory.peak:,} bytes, and the host has no memory left") from error
