"""Recognise segments: loops that add up rows of a matrix, as which PyTorch's exporter writes EmbeddingBag."""

import numpy as np

from dovetail.graph import DType, Graph, Node
from dovetail.passes import represented_by
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.loop import Loop
from dovetail_ops_onnx.reduce_max import ReduceMax
from dovetail_ops_onnx.reduce_mean import ReduceMean
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.segment_reduction import SegmentReduction
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.unsqueeze import Unsqueeze

__all__ = ["recognise_segments"]

_FLOATS = frozenset({DType.FLOAT32, DType.FLOAT64})
_HOW: dict[type, str] = {ReduceSum: "sum", ReduceMean: "mean", ReduceMax: "max"}


def recognise_segments(graph: Graph) -> Graph:
    """The graph with SegmentReduction in place of loops that stack sums, means or maxima of rows, taken by slices of numbers."""
    nodes = tuple(_reduction(graph, node) if isinstance(node.op, Loop) else node for node in graph.nodes)
    return graph if nodes == graph.nodes else graph.replace(nodes=nodes)


def _reduction(graph: Graph, node: Node) -> Node:
    """The node in place of a loop: itself where it is not of the form."""
    op = node.op
    assert isinstance(op, Loop)
    body = op.body
    if len(node.inputs) != 2 or not node.inputs[0] or (len(body.inputs), len(body.outputs), len(node.outputs)) != (2, 2, 1):
        return node
    if not (_is_true(graph, graph, node.inputs[1]) and _is_true(graph, body, body.outputs[0])):
        return node
    total = body.producers.get(body.outputs[1])
    if total is None or not isinstance(total.op, ReduceSum | ReduceMean | ReduceMax) or total.op.keepdims:
        return node
    if not _is_first_axis(graph, body, total):
        return node
    rows = body.producers.get(total.inputs[0])
    if rows is None or not isinstance(rows.op, Gather) or rows.op.axis != 0:
        return node
    part = body.producers.get(rows.inputs[1])
    if part is None or not isinstance(part.op, Slice) or len(part.inputs) != 4 or _numbers(graph, body, part.inputs[3]) != [0]:
        return node
    bounds = [_at_iteration(graph, body, name) for name in part.inputs[1:3]]
    names = (rows.inputs[0], part.inputs[0], *(name for name in bounds if name), node.inputs[0])
    if len(names) != 5 or any(name in body.producers or name in body.inputs or name in body.constants for name in names[:4]):
        return node
    weights = graph.types.get(names[0])
    if weights is None or weights.dtype not in _FLOATS:
        return node
    return Node(node.name, SegmentReduction(_HOW[type(total.op)]), names, node.outputs, (), represented_by(node))


def _at_iteration(graph: Graph, body: Graph, name: str) -> str | None:
    """The vector whose element at the iteration's number, as a vector of one, is this value."""
    wide = body.producers.get(name)
    if (
        wide is None
        or not isinstance(wide.op, Unsqueeze)
        or len(wide.inputs) != 2
        or _numbers(graph, body, wide.inputs[1]) != [0]
    ):
        return None
    one = body.producers.get(wide.inputs[0])
    if one is None or not isinstance(one.op, Gather) or one.op.axis != 0 or one.inputs[1] != body.inputs[0]:
        return None
    return one.inputs[0]


def _is_first_axis(graph: Graph, body: Graph, total: Node) -> bool:
    axes = getattr(total.op, "axes", None) or (_numbers(graph, body, total.inputs[1]) if len(total.inputs) > 1 else None)
    return axes is not None and list(axes) == [0]


def _numbers(graph: Graph, body: Graph, name: str) -> list[int] | None:
    found = body.constants.get(name)
    if found is None and name not in body.producers and name not in body.inputs:
        found = graph.constants.get(name)
    return None if found is None else np.atleast_1d(found).tolist()


def _is_true(graph: Graph, body: Graph, name: str) -> bool:
    """Whether a condition is left out, or a constant that holds."""
    while (one := body.producers.get(name)) is not None and isinstance(one.op, Identity | Cast) and not one.post_ops:
        name = one.inputs[0]
    return not name or _numbers(graph, body, name) == [True]
