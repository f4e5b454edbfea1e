"""Dropouts that are known to drop elements become an operator whose result is not a view of its input."""

import numpy as np

from dovetail.graph import Graph, Node
from dovetail_ops_onnx.dropout import Dropout, TrainingDropout

__all__ = ["settle_dropouts"]


def settle_dropouts(graph: Graph) -> Graph:
    """The graph with TrainingDropout in place of Dropout whose mode is constant and true, and whose ratio is constant but not 0.

    A node whose mode is known only when the model runs is planned apart: its result may be its input.
    """
    nodes = tuple(_settled(graph, node) if type(node.op) is Dropout else node for node in graph.nodes)
    return graph if nodes == graph.nodes else graph.replace(nodes=nodes)


def _settled(graph: Graph, node: Node) -> Node:
    op, (ratio, mode) = node.op, (*node.inputs[1:], "", "")[:2]
    assert isinstance(op, Dropout)
    share = np.array(0.5) if not ratio else graph.constants.get(ratio)
    training = graph.constants.get(mode)
    if share is None or training is None or not np.any(training) or not np.any(share != 0):
        return node
    return Node(node.name, TrainingDropout(seed=op.seed), node.inputs, node.outputs, node.post_ops, node.origins)
