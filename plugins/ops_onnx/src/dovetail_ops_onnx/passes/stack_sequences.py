"""Stack sequences: lists to which a loop appends, and lists of slices, become tensors. PyTorch's scripts often have them."""

import dataclasses
from collections.abc import Mapping, Sequence

from dovetail.graph import Graph, Node
from dovetail_ops_onnx.concat_from_sequence import ConcatFromSequence
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.loop import CollectingLoop, Loop
from dovetail_ops_onnx.sequence_at import SequenceAt
from dovetail_ops_onnx.sequence_construct import SequenceConstruct
from dovetail_ops_onnx.sequence_empty import SequenceEmpty
from dovetail_ops_onnx.sequence_insert import SequenceInsert
from dovetail_ops_onnx.split_to_sequence import SplitToSequence
from dovetail_ops_onnx.stacked_sequence import StackedSequence

__all__ = ["index_slices", "stack_sequences"]


def index_slices(graph: Graph) -> Graph:
    """The graph with Gather in place of SequenceAt of the slices of a tensor along an axis, in sub-graphs too.

    Sequences are lists on the host: a body that takes one is cut into parts.
    """
    found = {}
    for node in graph.nodes:
        if isinstance(node.op, SplitToSequence) and node.op.drops_axis([graph.constants.get(name) for name in node.inputs[1:]]):
            found[node.outputs[0]] = node.inputs[0], Gather(axis=node.op.axis)
    return _indexed(graph, found) if found else graph


def _indexed(graph: Graph, slices: Mapping[str, tuple[str, Gather]]) -> Graph:
    return graph.replace(nodes=tuple(_index(node, slices) for node in graph.nodes))


def _index(node: Node, slices: Mapping[str, tuple[str, Gather]]) -> Node:
    if isinstance(node.op, SequenceAt) and node.inputs[0] in slices:
        tensor, op = slices[node.inputs[0]]
        return dataclasses.replace(node, op=op, inputs=(tensor, node.inputs[1]))
    changed: dict[str, Graph] = {}
    for name, inner in node.op.named_subgraphs.items():
        own = {*inner.inputs, *inner.constants, *inner.producers}
        seen = {sequence: found for sequence, found in slices.items() if not own.intersection((sequence, found[0]))}
        if seen and not seen.keys().isdisjoint(inner.captures):
            changed[name] = _indexed(inner, seen)
    return dataclasses.replace(node, op=node.op.replace(**changed)) if changed else node


def stack_sequences(graph: Graph) -> Graph:
    """The graph with scan outputs in place of sequences to which each iteration appends, joined along a new axis afterwards.

    Others, whose tensors may differ in shape, are collected by the loop and stay sequences behind it.
    """
    for node in graph.nodes:
        if type(node.op) is Loop:
            graph = _stacked(graph, node, node.op)
    return graph


def _stacked(graph: Graph, node: Node, op: Loop) -> Graph:
    body, carried = op.body, node.inputs[2:]
    if len(body.inputs) != 2 + len(carried) or len(body.outputs) < 1 + len(carried):
        return graph  # the error is raised where it runs
    added = {i: name for i in range(len(carried)) if i < len(node.outputs) and (name := _appended(body, i)) is not None}
    joined = {
        index: (items, readers)
        for index in added
        if (items := _first_items(graph, carried[index])) is not None
        and (readers := _joins(graph, node.outputs[index])) is not None
    }
    kept = [index for index in range(len(carried)) if index not in added]
    lists = [index for index in added if index not in joined]
    if not added:
        return graph
    appends = {body.inputs[2 + index] for index in added}
    inner = body.replace(
        nodes=tuple(n for n in body.nodes if not (isinstance(n.op, SequenceInsert) and n.inputs[0] in appends)),
        inputs=(*body.inputs[:2], *(body.inputs[2 + index] for index in kept)),
        outputs=(
            body.outputs[0],
            *(body.outputs[1 + index] for index in kept),
            *body.outputs[1 + len(carried) :],
            *(added[index] for index in (*joined, *lists)),
        ),
        types={name: t for name, t in body.types.items() if name not in appends},
    )
    results = [name for index, name in enumerate(node.outputs) if index not in added]
    results += [""] * (len(kept) + len(body.outputs) - 1 - len(carried) - len(results))
    loop = dataclasses.replace(
        node,
        op=CollectingLoop(body=inner, lists=len(lists)) if lists else op.replace(body=inner),
        inputs=(*node.inputs[:2], *(carried[index] for index in (*kept, *lists))),
        outputs=(*results, *(node.outputs[index] for index in (*joined, *lists))),
    )
    joins = {
        reader.name: _join(reader, items, node.outputs[index]) for index, (items, readers) in joined.items() for reader in readers
    }
    nodes = tuple(loop if n is node else joins.get(n.name, n) for n in graph.nodes)
    stacks = {node.outputs[index] for index in joined}
    return graph.replace(nodes=nodes, types={name: t for name, t in graph.types.items() if name not in stacks})


def _first_items(graph: Graph, name: str) -> Sequence[str] | None:
    """The tensors that a sequence has before the loop; None where they are not known."""
    producer = graph.producers.get(name)
    if producer is None or not isinstance(producer.op, SequenceEmpty | SequenceConstruct):
        return None
    return producer.inputs


def _appended(body: Graph, index: int) -> str | None:
    """The tensor that each iteration appends to the carried sequence of this index; None where it does anything else."""
    given, result = body.inputs[2 + index], body.outputs[1 + index]
    insert = body.producers.get(result)
    if insert is None or not isinstance(insert.op, SequenceInsert) or len([n for n in insert.inputs if n]) != 2:
        return None
    alone = body.consumers.get(given) == (insert,) and result not in body.consumers and insert.inputs[1] != given
    return insert.inputs[1] if alone and insert.inputs[0] == given and body.outputs.count(result) == 1 else None


def _joins(graph: Graph, name: str) -> Sequence[Node] | None:
    """The nodes that join a sequence along a new axis; None where anything else reads it."""
    readers = graph.consumers.get(name, ())
    if not name or not readers or name in graph.output_names:
        return None
    is_joined = all(isinstance(one.op, ConcatFromSequence) and one.op.new_axis for one in readers)
    return readers if is_joined else None


def _join(reader: Node, items: Sequence[str], stacked: str) -> Node:
    """The node in place of one that joined the sequence of `items` and what a loop has stacked."""
    assert isinstance(reader.op, ConcatFromSequence)
    return dataclasses.replace(reader, op=StackedSequence(reader.op.axis), inputs=(stacked, *items))
