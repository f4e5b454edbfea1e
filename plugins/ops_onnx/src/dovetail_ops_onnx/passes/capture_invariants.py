"""Capture invariants: values that a loop carries without changing them, such as weights, are read from outside its body."""

import dataclasses

import numpy as np

from dovetail.graph import Graph, Node, TensorType, as_constant
from dovetail.op import free_name
from dovetail.passes import represented_by
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.loop import Loop

__all__ = ["capture_invariants"]


def capture_invariants(graph: Graph) -> Graph:
    """The graph with bodies of Loop that read what no iteration changes from the graph around them.

    Carried values are copied in each iteration, and are never constants: a matrix cannot be brought into the layout of a
    product once. The result of such a value is its first one, also of a loop without iterations.
    """
    nodes = tuple(part for node in graph.nodes for part in (_simplified(node, graph) if isinstance(node.op, Loop) else (node,)))
    return graph if nodes == graph.nodes else graph.replace(nodes=nodes)


def _simplified(node: Node, graph: Graph) -> tuple[Node, ...]:
    op = node.op
    assert isinstance(op, Loop)
    count = len(node.inputs[2:])
    if len(op.body.inputs) != 2 + count or len(op.body.outputs) < 1 + count:
        return (node,)  # the error is raised where it runs
    body = op.body
    if body.inputs[1] in {*body.outputs, *(name for inner in body.nodes for name in inner.reads)}:
        body = _with_true_condition(body)
        node = dataclasses.replace(node, op=op.replace(body=body))
    return _captured(node, body, graph)


def _with_true_condition(body: Graph) -> Graph:
    """The body with a constant for the condition that it takes, which is true whenever it runs; the input stays, unread."""
    given = body.inputs[1]
    unread = free_name(f"{given}/unread", {*body.inputs, *body.constants, *body.producers, *body.captures}.__contains__)
    true = as_constant(np.array(True))
    return body.replace(
        inputs=(body.inputs[0], unread, *body.inputs[2:]),
        constants={**body.constants, given: true},
        types={**body.types, given: TensorType.of(true), unread: TensorType.of(true)},
    )


def _captured(node: Node, body: Graph, graph: Graph) -> tuple[Node, ...]:
    """The loop without its invariants, and nodes that give their results."""
    op, carried = node.op, node.inputs[2:]
    found = {index: outer for index, outer in enumerate(carried) if outer and _is_invariant(body, index, outer)}
    if not found:
        return (node,)
    inside = {body.inputs[2 + index]: outer for index, outer in found.items()}
    inner = body.replace(
        nodes=tuple(dataclasses.replace(n, inputs=tuple(inside.get(i, i) for i in n.inputs)) for n in body.nodes),
        inputs=_without(body.inputs, 2, found),
        outputs=_without(body.outputs, 1, found),
        types={name: t for name, t in body.types.items() if name not in inside},
    )
    loop = dataclasses.replace(
        node, op=op.replace(body=inner), inputs=_without(node.inputs, 2, found), outputs=_without(node.outputs, 0, found)
    )
    results = [(outer, node.outputs[index]) for index, outer in found.items() if index < len(node.outputs)]
    origins = represented_by(node)
    copies = (
        Node(graph.free_name(f"{node.name}.{name}"), Identity(), (outer,), (name,), (), origins)
        for outer, name in results
        if name
    )
    return (*((loop,) if any(loop.outputs) else ()), *copies)


def _is_invariant(body: Graph, index: int, outer: str) -> bool:
    """Whether the body gives back the carried value of this index as it is, and may read `outer` in its place."""
    given, name = body.inputs[2 + index], body.outputs[1 + index]
    while name != given:
        producer = body.producers.get(name)
        if producer is None or not isinstance(producer.op, Identity) or producer.post_ops:
            return False
        name = producer.inputs[0]
    others = (*body.outputs[: 1 + index], *body.outputs[2 + index :])
    is_read_within = any(given in inner.captures for n in body.nodes for inner in n.op.subgraphs)
    is_taken = outer in body.inputs or outer in body.constants or outer in body.producers
    return given not in others and not is_read_within and not is_taken


def _without(names: tuple[str, ...], before: int, indices: dict[int, str]) -> tuple[str, ...]:
    """The names without those at `before` plus one of the indices."""
    return tuple(name for place, name in enumerate(names) if place - before not in indices)
