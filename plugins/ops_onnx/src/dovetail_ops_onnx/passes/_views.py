"""Reshapes in place of nodes that move nothing."""

import dataclasses
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import Graph, Node, as_constant
from dovetail_ops_onnx.reshape import Reshape

__all__ = ["as_view"]


def as_view(node: Node, source: str, graph: Graph, shapes: dict[str, NDArray[Any]]) -> Node:
    """The node as a reshape of `source` to the shape of its result, a constant that is added to `shapes`."""
    name = graph.free_name(f"{node.name}.shape")
    shapes[name] = as_constant(np.asarray(graph.types[node.outputs[0]].dims, np.int64))
    return dataclasses.replace(node, op=Reshape(allowzero=True), inputs=(source, name))
