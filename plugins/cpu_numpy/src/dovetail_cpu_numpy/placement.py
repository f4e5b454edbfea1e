"""The kernels of nodes: the first that accepts a node runs it."""

from collections.abc import Set

from dovetail.device import Accepted, Choice, Graph, KernelTable, Reason, Refusal, TypedNode, choose
from dovetail.errors import CompileError
from dovetail_cpu_numpy.elementwise import ChainKernel
from dovetail_cpu_numpy.executable import NumpyExecutable, Placement
from dovetail_cpu_numpy.hosting import HostedKernel
from dovetail_cpu_numpy.kernel import NumpyKernel
from dovetail_cpu_numpy.reference import ReferenceKernel
from dovetail_cpu_numpy.stub import StubKernel
from dovetail_cpu_numpy.view import ViewKernel

__all__ = ["by_reference", "chosen", "compiled", "place"]

_TABLE: KernelTable[NumpyKernel] = KernelTable("dovetail_cpu_numpy.kernels", defined_in=("dovetail", "dovetail_ops_onnx"))

_FOR_EVERY_OPERATOR: tuple[NumpyKernel, ...] = (ViewKernel(), ChainKernel(), ReferenceKernel())
"""The kernels that are tried after those of an operator's stem."""


def chosen(node: TypedNode) -> Choice[NumpyKernel] | Refusal:
    """The kernel that runs the node, or why none does."""
    if not node.is_static:
        return Refusal(Reason.DYNAMIC)
    return choose((*_TABLE[node.op], *HostedKernel.of(node.op), *_FOR_EVERY_OPERATOR), node)


def by_reference(node: TypedNode) -> Accepted | None:
    """The answer of the reference of its operator, if it can run the node."""
    found = _FOR_EVERY_OPERATOR[-1].supports(node)
    return found if node.is_static and isinstance(found, Accepted) else None


def place(node: TypedNode) -> Placement:
    """The node with its kernel. Raises `CompileError` when the device refuses it."""
    choice = chosen(node)
    if isinstance(choice, Refusal):
        raise CompileError(f"NUMPY refuses node {node.node}: {choice}")
    kernel = choice.kernel
    if not any(config.fits(node) for config in kernel.configurations(node)):
        given = ", ".join("-" if t is None else str(t) for t in (*node.inputs, *node.outputs, *node.operands))
        raise CompileError(f"NUMPY, node {node.node}: the kernel {kernel.name!r} takes it in other memory layouts than {given}")
    reservation = kernel.reservation(node)
    return Placement(node, kernel, (*choice.refusals, *([(kernel.name, reservation)] if reservation is not None else ())))


def compiled(graph: Graph, stubs: Set[str]) -> NumpyExecutable:
    """The executable of a graph, without the work of the nodes whose operators `stubs` names. Raises as `place`."""
    placements = [place(TypedNode.of(node, graph)) for node in graph.nodes]
    return NumpyExecutable(graph, tuple(_stubbed(p) if {p.node.op.op_type, p.node.op.key} & stubs else p for p in placements))


def _stubbed(placement: Placement) -> Placement:
    return Placement(placement.node, StubKernel(placement.kernel), placement.refusals)
