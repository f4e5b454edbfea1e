"""Opaque: nodes for which the user gave a device a kernel stay unchanged, whatever other passes would make of them."""

import dataclasses
from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import Any

from dovetail.devices.checked import ask, prescribes
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
    prescribed = _prescribed(graph, devices)
    if not prescribed:
        return graph
    return graph.replace(nodes=tuple([_declared(n, graph, find) if _is_open(n, prescribed) else n for n in graph.nodes]))


def _prescribed(graph: Graph, devices: Sequence[Device]) -> set[tuple[str, str]]:
    """The operators of the graph, by domain and type, for which a device has the user's kernel."""
    keys = {(node.op.domain, node.op.op_type) for node in graph.nodes}
    return {key for key in keys if any(prescribes(device, *key) for device in devices)}


def _is_open(node: Node, prescribed: Container[tuple[str, str]]) -> bool:
    op = node.op
    return isinstance(op, UnboundOperator) and not op.subgraphs and (op.domain, op.op_type) in prescribed


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
    if OpaqueOperator not in graph.op_classes:
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
    prescribed = _prescribed(graph, devices)
    if not prescribed:
        return graph
    return graph.replace(nodes=tuple([_pinned(n, graph, devices, prescribed) for n in graph.nodes]))


def _pinned(node: Node, graph: Graph, devices: Sequence[Device], prescribed: Container[tuple[str, str]]) -> Node:
    if isinstance(node.op, OpaqueOperator | UnboundOperator) or (node.op.domain, node.op.op_type) not in prescribed:
        return node
    home = next((device for device in devices if ask(device, TypedNode.of(node, graph))), None)
    if home is None or not prescribes(home, node.op.domain, node.op.op_type):
        return node
    inputs = tuple(graph.type_of(name) for name in node.inputs)
    op = PinnedOperator.of(node.op, inputs, tuple(graph.type_of(name) for name in node.outputs))
    pinned = dataclasses.replace(node, op=op)
    return pinned if ask(home, TypedNode.of(pinned, graph)) else node
