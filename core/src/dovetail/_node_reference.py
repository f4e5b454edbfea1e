"""A node with its post-ops in NumPy, step by step."""

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from dovetail.graph.model import Graph, Node
from dovetail.graph.types import TensorType
from dovetail.passes.constant_folding import infer_node, run_reference
from dovetail.passes.unfuse_post_ops import unfuse_post_ops

__all__ = ["node_reference"]


def node_reference(node: Node, values: Sequence[NDArray[Any] | None], operands: Sequence[NDArray[Any]]) -> list[NDArray[Any]]:
    """The outputs that are present, by the operator's reference and those of its post-ops, each rounded to its type.

    `values` are the inputs, None for those left out, `operands` what the post-ops read. Raises as `run_reference` does.
    """
    found = {name: v for name, v in zip((*node.inputs, *node.operands), (*values, *operands), strict=True) if v is not None}
    graph = unfuse_post_ops(Graph((node,), tuple(found), node.writes))
    for step in graph.nodes:
        given = [found[name] if name else None for name in step.inputs]
        types = infer_node(step, [None if v is None else TensorType.of(v, known=True) for v in given])
        found.update(zip(step.writes, run_reference(step, given, types), strict=True))
    return [found[name] for name in node.writes]
