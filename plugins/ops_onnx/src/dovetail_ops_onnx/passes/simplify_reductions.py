"""Simplify reductions over axes of size 1: the result is the input under another shape."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import Graph, Node, TensorType, as_constant
from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_min import ReduceMin
from dovetail_ops_onnx.reduce_prod import ReduceProd
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reshape import Reshape

__all__ = ["simplify_reductions"]

_KEEPING_ONE = (ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum)
"""The reductions that give a single element back as it is."""


def simplify_reductions(graph: Graph) -> Graph:
    """The graph with a reshape for each reduction over constant axes that all have size 1. Needs types.

    A reshape is a view, which no device computes. Those to the input's own shape are identities afterwards.
    """
    shapes: dict[str, NDArray[Any]] = {}
    nodes = tuple(_simplified(node, graph, shapes) for node in graph.nodes)
    if not shapes:
        return graph
    types = {**graph.types, **{name: TensorType.of(dims, known=True) for name, dims in shapes.items()}}
    return graph.replace(nodes=nodes, constants={**graph.constants, **shapes}, types=types)


def _simplified(node: Node, graph: Graph, shapes: dict[str, NDArray[Any]]) -> Node:
    op = node.op
    if type(op) not in _KEEPING_ONE or not isinstance(op, Reduction) or node.post_ops:
        return node
    data, axes = graph.types[node.inputs[0]], graph.type_of(node.inputs[1]) if len(node.inputs) > 1 else None
    if axes is not None and axes.value is None:
        return node
    reduced = op.reduced_axes(data.rank, None if axes is None else axes.value)
    if any(data.dims[axis] != 1 for axis in reduced):
        return node
    name = f"{node.name}.shape"
    shapes[name] = as_constant(np.asarray(graph.types[node.outputs[0]].dims, np.int64))
    return dataclasses.replace(node, op=Reshape(allowzero=True), inputs=(node.inputs[0], name))
