"""Fold Slice into the convolution before it: exports of causal convolutions pad both ends, then cut one off."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from dovetail.graph import Graph, Node
from dovetail.passes import represented_by
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.slice import Slice, Slice_1

__all__ = ["fold_crop"]

_ALL = 2**31 - 1
"""The least end that exporters write for all that follows."""


def fold_crop(graph: Graph) -> Graph:
    """The graph with convolutions that compute only what the Slice behind them leaves, where that is their only reader.

    Conv gets smaller pads, so a slice must not cut off more than depends on them; ConvTranspose gets larger ones, which stay
    below the window. Spatial axes may be cut, by steps of 1 and numbers that count from both ends, so that the result holds for
    all sizes. `auto_pad` is not touched. Needs types.
    """
    nodes = tuple(_folded(node, graph) or node for node in graph.nodes)
    changed = any(a is not b for a, b in zip(nodes, graph.nodes, strict=True))
    return graph.replace(nodes=nodes) if changed else graph


def _folded(cut: Node, graph: Graph) -> Node | None:
    node = graph.producers.get(cut.inputs[0]) if type(cut.op) in (Slice, Slice_1) else None
    if node is None or node.post_ops or len(graph.consumers[cut.inputs[0]]) > 1 or cut.inputs[0] in graph.output_names:
        return None
    op: Any = node.op
    rank = graph.types[node.inputs[0]].rank - 2
    if not is_one(op, "Conv", "ConvTranspose") or op.auto_pad not in ("NOTSET", "VALID"):
        return None
    widths = _widths(cut, graph)
    if widths is None:
        return None
    own = op.pads if op.pads is not None and op.auto_pad == "NOTSET" else (0,) * len(widths)
    if is_one(op, "Conv"):
        pads = tuple(a - b * s for a, b, s in zip(own, widths, (op.strides or (1,) * rank) * 2, strict=True))
        fits = min(pads) >= 0
    else:
        pads = tuple(a + b for a, b in zip(own, widths, strict=True))
        extent = op.geometry(graph.types[node.inputs[0]], graph.types[node.inputs[1]]).extent
        fits = op.output_shape is None and all(p < e for p, e in zip(pads, extent * 2, strict=True))
    if not fits:
        return None
    merged = dataclasses.replace(op, pads=pads, auto_pad="NOTSET")
    origins = represented_by(node, cut)
    return dataclasses.replace(cut, op=merged, inputs=node.inputs, origins=origins)


def _widths(cut: Node, graph: Graph) -> tuple[int, ...] | None:
    """The pixels cut off before, then after each spatial axis; None for anything else."""
    src, result = graph.types[cut.inputs[0]], graph.types[cut.outputs[0]]
    bounds = _bounds(cut, graph)
    if bounds is None or not result.size:
        return None
    starts, ends, axes, steps = bounds
    widths = [0] * (2 * src.rank)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        if step != 1 or start < 0 or 0 <= end < _ALL:
            return None
        widths[axis % src.rank] = start
        widths[axis % src.rank + src.rank] = -min(end, 0)
    channels = (0, 1, src.rank, src.rank + 1)
    return None if any(widths[i] for i in channels) else (*widths[2 : src.rank], *widths[src.rank + 2 :])


def _bounds(cut: Node, graph: Graph) -> tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]] | None:
    """Starts, ends, axes and steps, if all are known."""
    tensors = [graph.type_of(name) for name in (*cut.inputs[1:], "", "")[:4]]
    values = [None if tensor is None else tensor.value for tensor in tensors]
    if any(tensor is not None and value is None for tensor, value in zip(tensors, values, strict=True)):
        return None
    starts, ends, axes, steps = (None if value is None else [int(n) for n in value.reshape(-1)] for value in values)
    if starts is None or ends is None:
        return None
    return starts, ends, range(len(starts)) if axes is None else axes, (1,) * len(starts) if steps is None else steps
