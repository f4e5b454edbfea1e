"""The device NUMPY: chooses kernels and compiles graphs."""

import os
import platform
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.device import (
    PLAIN,
    Accepted,
    Choice,
    Device,
    DeviceInfo,
    Graph,
    KernelTable,
    LayerConfig,
    Reason,
    Refusal,
    TypedNode,
    choose,
)
from dovetail.errors import CompileError
from dovetail_cpu_numpy.elementwise import ChainKernel
from dovetail_cpu_numpy.executable import NumpyExecutable, Placement
from dovetail_cpu_numpy.hosting import hosted_kernels
from dovetail_cpu_numpy.kernel import NumpyKernel
from dovetail_cpu_numpy.options import Options
from dovetail_cpu_numpy.reference import ReferenceKernel
from dovetail_cpu_numpy.stub import StubKernel
from dovetail_cpu_numpy.view import ViewKernel

__all__ = ["NumpyDevice", "describe", "place"]

_TABLE: KernelTable[NumpyKernel] = KernelTable("dovetail_cpu_numpy.kernels", defined_in=("dovetail", "dovetail_ops_onnx"))

_FOR_EVERY_OPERATOR: tuple[NumpyKernel, ...] = (ViewKernel(), ChainKernel(), ReferenceKernel())
"""The kernels that are tried after those of an operator's stem."""


def describe() -> DeviceInfo:
    """The device NUMPY of this machine."""
    details: dict[str, str | int] = {"numpy": np.__version__, "cpus": os.cpu_count() or 1}
    return DeviceInfo("NUMPY", "NUMPY", "CPU", f"NumPy on {platform.machine() or 'this CPU'}", priority=0, details=details)


class NumpyDevice(Device):
    """Runs each operator by the first kernel that accepts it.

    These are the kernels of its stem, the host kernels that it provides, its chain of post-ops, and at last its reference.
    """

    def __init__(self, info: DeviceInfo) -> None:
        self.info = info

    def configured(self, options: Mapping[str, Any]) -> "NumpyDevice":
        """The device itself. Raises `UsageError` for an unknown option before a model is read."""
        Options.read(options)
        return self

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        """Everything with static shapes and a reference, unless a post-op does not fit."""
        choice = _choose(node)
        return choice if isinstance(choice, Refusal) else Accepted(choice.kernel.name, choice.kernel.from_operator)

    def accepts(self, node: TypedNode) -> Accepted | Refusal:
        """As `supports`, without a look at the kernels of a node that its reference would run in any case."""
        found = _FOR_EVERY_OPERATOR[-1].supports(node)
        return found if node.is_static and isinstance(found, Accepted) else self.supports(node)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """The layouts of the kernel that runs the node: declared for host kernels, any for elementwise ones, else plain."""
        choice = _choose(node)
        return (LayerConfig.uniform(node, PLAIN),) if isinstance(choice, Refusal) else choice.kernel.configurations(node)

    def compile(self, graph: Graph, options: Mapping[str, Any]) -> NumpyExecutable:
        """Choose kernels, plan memory, prepare weights. Raises `CompileError` naming a refused node, `UsageError` for options."""
        stubs = {*Options.read(options).STUB}
        placements = [place(TypedNode.of(node, graph)) for node in graph.nodes]
        return NumpyExecutable(graph, tuple(_stubbed(p) if {p.node.op.op_type, p.node.op.key} & stubs else p for p in placements))


def _choose(node: TypedNode) -> Choice[NumpyKernel] | Refusal:
    if not node.is_static:
        return Refusal(Reason.DYNAMIC)
    return choose((*_TABLE[node.op], *hosted_kernels(node.op), *_FOR_EVERY_OPERATOR), node)


def _stubbed(placement: Placement) -> Placement:
    return Placement(placement.node, StubKernel(placement.kernel), placement.refusals)


def place(node: TypedNode) -> Placement:
    """The node with its kernel. Raises `CompileError` when the device refuses it."""
    choice = _choose(node)
    if isinstance(choice, Refusal):
        raise CompileError(f"NUMPY refuses node {node.node}: {choice}")
    kernel = choice.kernel
    if not any(config.fits(node) for config in kernel.configurations(node)):
        given = ", ".join("-" if t is None else str(t) for t in (*node.inputs, *node.outputs, *node.operands))
        raise CompileError(f"NUMPY, node {node.node}: the kernel {kernel.name!r} takes it in other memory layouts than {given}")
    reservation = kernel.reservation(node)
    return Placement(node, kernel, (*choice.refusals, *([(kernel.name, reservation)] if reservation is not None else ())))
