"""Opaque: nodes for which the user gave a device a kernel stay unchanged, whatever other passes would make of them."""

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from dovetail.devices.contract import Device
from dovetail.devices.typed_node import TypedNode
from dovetail.errors import UnknownOperator
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node, UnboundOperator
from dovetail.graph.types import TensorType
from dovetail.internal.opaque import OpaqueOperator, PinnedOperator
from dovetail.passes.bind import Find

__all__ = ["declare", "declare_shapes", "pin"]


def declare(graph: Graph, find: Find, devices: Sequence[Device]) -> Graph:
    """The graph with nodes that no operator class defines and a device has a kernel for, typed as the model declares.

    A class that takes the operator by translation, under another name, does not count: the kernel is for the name in the model.
    Before `bind`, which reports all other unknown operators.
    """
    if not any(_unbound(node, devices) for node in graph.nodes):
        return graph
    return graph.replace(nodes=tuple(_declared(n, graph, find) if _unbound(n, devices) else n for n in graph.nodes))


def _unbound(node: Node, devices: Sequence[Device]) -> bool:
    op = node.op
    if not isinstance(op, UnboundOperator) or op.subgraphs:
        return False
    return any(device.prescribes(op.domain, op.op_type) for device in devices)


def _declared(node: Node, graph: Graph, find: Find) -> Node:
    op = node.op
    assert isinstance(op, UnboundOperator)
    with suppress(UnknownOperator):
        if find(op.domain, op.op_type, op.version).translation(op.domain, op.op_type) is None:
            return node
    return dataclasses.replace(node, op=_opaque(op.domain, op.op_type, op.raw, node, graph))


def _opaque(domain: str, op_type: str, raw: Mapping[str, Any], node: Node, graph: Graph) -> OpaqueOperator:
    inputs = tuple(graph.types.get(name) for name in node.inputs)
    outputs = tuple(graph.types.get(name, TensorType(DType.FLOAT32, None)) if name else None for name in node.outputs)
    return OpaqueOperator(domain=domain, op_type=op_type, raw=raw, declared=inputs, results=outputs)


def declare_shapes(graph: Graph) -> Graph:
    """The graph with declared operators whose types have the sizes that the graph declares for its input shapes."""
    if not any(type(node.op) is OpaqueOperator for node in graph.nodes):
        return graph
    return graph.replace(nodes=tuple(_with_shapes(node, graph) for node in graph.nodes))


def _with_shapes(node: Node, graph: Graph) -> Node:
    op = node.op
    if type(op) is not OpaqueOperator:
        return node
    return dataclasses.replace(node, op=_opaque(op.domain, op.op_type, op.raw, node, graph))


def pin(graph: Graph, devices: Sequence[Device]) -> Graph:
    """The graph with every node that would run on a device which has the user's kernel for it made opaque: not to be merged,
    expanded or rewritten. Needs types.

    A node that the kernel refuses stays as it is.
    """
    if not any(_prescribing(node, devices) for node in graph.nodes):
        return graph
    return graph.replace(nodes=tuple(_pinned(n, graph, devices) if _prescribing(n, devices) else n for n in graph.nodes))


def _prescribing(node: Node, devices: Sequence[Device]) -> bool:
    known = not isinstance(node.op, OpaqueOperator | UnboundOperator)
    return known and any(device.prescribes(node.op.domain, node.op.op_type) for device in devices)


def _pinned(node: Node, graph: Graph, devices: Sequence[Device]) -> Node:
    home = next((device for device in devices if device.supports(TypedNode.of(node, graph))), None)
    if home is None or not home.prescribes(node.op.domain, node.op.op_type):
        return node
    inputs = tuple(graph.type_of(name) for name in node.inputs)
    op = PinnedOperator.of(node.op, inputs, tuple(graph.type_of(name) for name in node.outputs))
    pinned = dataclasses.replace(node, op=op)
    return pinned if home.supports(TypedNode.of(pinned, graph)) else node
