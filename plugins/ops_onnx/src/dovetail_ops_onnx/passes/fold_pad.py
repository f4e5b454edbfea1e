"""Fold Pad into the convolution or pooling behind it, where that changes no result."""

import dataclasses

import numpy as np

from dovetail.graph import Graph, Node
from dovetail.passes import represented_by
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.conv import Conv
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.pad import Pad, Pad_2
from dovetail_ops_onnx.relu import Relu

__all__ = ["fold_pad"]


def fold_pad(graph: Graph) -> Graph:
    """The graph with the pads of each foldable pair in the second operator.

    Zeros fold into Conv, and into an AveragePool without pads of its own, which then counts its padding. Minus infinity folds
    into MaxPool, and so do zeros around what a Relu gives, if every window reads the input. Only spatial axes may be padded, none
    may be cut, and the pads must be numbers (`auto_pad` is not touched). Needs types. The Pad stays where it is read elsewhere.
    """
    nodes = tuple(_folded(node, graph) or node for node in graph.nodes)
    changed = any(a is not b for a, b in zip(nodes, graph.nodes, strict=True))
    return graph.replace(nodes=nodes) if changed else graph


def _folded(node: Node, graph: Graph) -> Node | None:
    op = node.op
    if type(op) not in (Conv, AveragePool, MaxPool) or not isinstance(op, Conv | AveragePool | MaxPool):
        return None
    pad = graph.producers.get(node.inputs[0])
    if pad is None or pad.post_ops or op.auto_pad not in ("NOTSET", "VALID"):
        return None
    widths = _widths(pad, graph)
    fill = None if widths is None else _fill(pad, graph)
    if widths is None or fill is None:
        return None
    own = op.pads if op.pads is not None and op.auto_pad == "NOTSET" else (0,) * len(widths)
    pads = tuple(a + b for a, b in zip(own, widths, strict=True))
    merged: Conv | AveragePool | MaxPool | None
    if isinstance(op, Conv):
        merged = dataclasses.replace(op, pads=pads, auto_pad="NOTSET") if fill == 0 else None
    elif isinstance(op, AveragePool):
        merged = _averaged(op, own, pads) if fill == 0 else None
    else:
        merged = _greatest(node, op, own, pads, fill, pad, graph)
    if merged is None:
        return None
    origins = represented_by(pad, node)
    return dataclasses.replace(node, op=merged, inputs=(pad.inputs[0], *node.inputs[1:]), origins=origins)


def _averaged(op: AveragePool, own: tuple[int, ...], pads: tuple[int, ...]) -> AveragePool | None:
    """The zeros were elements and counted; padding of the operator's own counts only with `count_include_pad`."""
    if any(own) and not op.count_include_pad:
        return None
    # With `ceil_mode` a last window may end in the pads or beyond them, which count differently.
    return None if op.ceil_mode else dataclasses.replace(op, pads=pads, auto_pad="NOTSET", count_include_pad=True)


def _greatest(
    node: Node, op: MaxPool, own: tuple[int, ...], pads: tuple[int, ...], fill: float, pad: Node, graph: Graph
) -> MaxPool | None:
    """Padding counts as minus infinity; zeros are as good where nothing is less and every window holds an element."""
    if len(node.writes) != 1 or op.ceil_mode:
        return None
    before = graph.producers.get(pad.inputs[0])
    zeros = fill == 0 and not any(own) and before is not None and type(before.op) is Relu and not before.post_ops
    inside = graph.types[pad.inputs[0]].dims[2:]
    # A window starts at or after -pad, so it reaches the input when it is longer than the pad; the same from the other end.
    longest = zip(inside, op.kernel_shape, pads[: len(inside)], pads[len(inside) :], strict=True)
    reaches = set(op.dilations or (1,)) == {1} and all(size and kernel > max(ends) for size, kernel, *ends in longest)
    if not reaches or not (fill == -np.inf or zeros):
        return None
    return dataclasses.replace(op, pads=pads, auto_pad="NOTSET")


def _widths(pad: Node, graph: Graph) -> tuple[int, ...] | None:
    """The padding before, then after each spatial axis; None for anything else."""
    if not isinstance(pad.op, Pad) or type(pad.op) not in (Pad, Pad_2) or pad.op.mode != "constant":
        return None
    rank = graph.types[pad.inputs[0]].rank
    axes: list[int] = list(range(rank))
    found = [graph.type_of(name) for name in pad.inputs[1:]]
    if found[0] is None or found[0].value is None:
        return None
    given = [int(n) for n in found[0].value]
    if len(found) > 2 and found[2] is not None:
        if found[2].value is None:
            return None
        axes = [int(a) % rank for a in found[2].value]
    widths = [0] * (2 * rank)
    for index, axis in enumerate(axes):
        widths[axis], widths[axis + rank] = given[index], given[index + len(axes)]
    if rank < 3 or min(widths) < 0 or any(widths[i] for i in (0, 1, rank, rank + 1)):
        return None
    return (*widths[2:rank], *widths[rank + 2 :])


def _fill(pad: Node, graph: Graph) -> float | None:
    if isinstance(pad.op, Pad_2):
        return pad.op.value
    if len(pad.inputs) < 3 or not pad.inputs[2]:
        return 0.0
    value = graph.types[pad.inputs[2]].value
    return None if value is None or value.size != 1 or value.dtype.kind in "OSU" else float(value.reshape(()))
