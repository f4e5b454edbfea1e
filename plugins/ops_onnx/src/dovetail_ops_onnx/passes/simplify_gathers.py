"""Simplify gathers: the only slice of an axis is the input under another shape."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import Graph, Node, TensorType, as_constant
from dovetail_ops_onnx.gather import Gather, outside
from dovetail_ops_onnx.reshape import Reshape

__all__ = ["simplify_gathers"]


def simplify_gathers(graph: Graph) -> Graph:
    """The graph with a reshape for each Gather of one constant index along an axis of size 1.

    Exporters write so the only text or image of a batch, and the only layer of a recurrence. A reshape is a view, which no device
    computes. An index out of range is left to the device. Needs types.
    """
    shapes: dict[str, NDArray[Any]] = {}
    nodes = tuple(_simplified(node, graph, shapes) for node in graph.nodes)
    if not shapes:
        return graph
    types = {**graph.types, **{name: TensorType.of(dims, known=True) for name, dims in shapes.items()}}
    return graph.replace(nodes=nodes, constants={**graph.constants, **shapes}, types=types)


def _simplified(node: Node, graph: Graph, shapes: dict[str, NDArray[Any]]) -> Node:
    op = node.op
    if not isinstance(op, Gather) or node.post_ops:
        return node
    data, index = graph.types[node.inputs[0]], graph.types[node.inputs[1]].value
    if index is None or index.size != 1 or data.dims[op.axis % data.rank] != 1 or outside(index, 1):
        return node
    name = graph.free_name(f"{node.name}.shape")
    shapes[name] = as_constant(np.asarray(graph.types[node.outputs[0]].dims, np.int64))
    return dataclasses.replace(node, op=Reshape(allowzero=True), inputs=(node.inputs[0], name))
