"""Queries, keys and values that are taken out of one stack [3, batch, heads, length, size], as vision transformers have them."""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.graph import Graph, Node
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.passes._patterns import Match, Pattern
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.transpose import Transpose

if TYPE_CHECKING:
    from dovetail_ops_onnx.gather import Gather
    from dovetail_ops_onnx.split import Split

__all__ = ["Part", "Stacked", "part_of"]

_PERM = (2, 0, 3, 1, 4)
_SPLITS = ("Split", "Split_2", "Split_13")


@dataclass(frozen=True)
class Part:
    """The columns from `first` to `end` of `source`, [batch, length, all heads of all parts], and the nodes that take them."""

    source: str
    first: int
    end: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Stacked(Pattern):
    """[batch, heads, length, size], a `Part` with the heads first."""

    name: str

    def matches(self, graph: Graph, value: str, so_far: Match) -> Iterator[Match]:
        part, found = part_of(graph, value), so_far.bound(self.name, value)
        if part is not None and found is not None:
            for node in part.nodes:
                found = found.covering(node)
            yield found


def part_of(graph: Graph, value: str) -> Part | None:
    """The part that a value is; None for others."""
    taken = _taken(graph, value)
    if taken is None:
        return None
    index, nodes = taken
    turned = graph.producers.get(nodes[-1].inputs[0])
    if turned is None or type(turned.op) is not Transpose or turned.op.perm != _PERM or turned.post_ops:
        return None
    split = graph.producers.get(turned.inputs[0])
    if split is None or type(split.op) is not Reshape:
        return None
    source, dims = graph.types[split.inputs[0]].dims, graph.types[split.outputs[0]].dims
    if len(source) != 3 or dims[:2] != source[:2]:
        return None
    size = math.prod(dims[3:])
    return Part(split.inputs[0], index * size, (index + 1) * size, (*nodes, turned, split))


def _taken(graph: Graph, value: str) -> tuple[int, tuple[Node, ...]] | None:
    """The index along the first axis of a stack, and the nodes that take what is there: a Gather, or a Squeeze of a Split."""
    node = graph.producers.get(value)
    if node is None or node.post_ops:
        return None
    stack = graph.types[node.inputs[0]].dims
    if is_one(node.op, "Gather"):
        index = graph.constants.get(node.inputs[1])
        if index is None or index.shape != () or cast("Gather", node.op).axis % len(stack) or not -stack[0] <= index < stack[0]:
            return None
        return int(index) % stack[0], (node,)
    parts = graph.producers.get(node.inputs[0])
    if not is_one(node.op, "Squeeze", "Squeeze_1") or parts is None or not is_one(parts.op, *_SPLITS) or parts.post_ops:
        return None
    whole = graph.types[parts.inputs[0]].dims
    if cast("Split", parts.op).axis % len(whole) or stack[0] != 1 or graph.types[value].dims != whole[1:]:
        return None
    sizes = [graph.types[name].dims[0] for name in parts.writes]
    return int(np.sum(sizes[: parts.writes.index(node.inputs[0])])), (node, parts)
