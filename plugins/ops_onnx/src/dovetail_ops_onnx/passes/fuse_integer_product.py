"""Fuse integer products: MatMulInteger whose sums become float32 gives them so itself, where a device has a kernel for it."""

import dataclasses
from collections.abc import Callable

from dovetail.graph import DType, Graph, Node
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.mat_mul_integer_to_float import MatMulIntegerToFloat

__all__ = ["fuse_integer_products"]


def fuse_integer_products(graph: Graph, keeps: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with each MatMulInteger that only a Cast to float32 reads as one operator with that Cast.

    It comes before the first reader of its result, so that what else that reads (the product of the scales) is there when the
    fusion of post-ops asks for it. Needs types and schedule order.
    """
    before: dict[str, Node] = {}
    gone: set[str] = set()
    for node in graph.nodes:
        cast = _cast_of(node, graph)
        if cast is None:
            continue
        fused = dataclasses.replace(
            node, op=MatMulIntegerToFloat(), outputs=cast.outputs, origins=tuple(dict.fromkeys((*node.origins, *cast.origins)))
        )
        if keeps(fused, graph):
            readers = graph.consumers.get(cast.outputs[0], ())
            before[readers[0].name if readers and cast.outputs[0] not in graph.output_names else cast.name] = fused
            gone |= {node.name, cast.name}
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += [before[node.name]] if node.name in before else []
        nodes += [] if node.name in gone else [node]
    return graph.replace(nodes=tuple(nodes)) if gone else graph


def _cast_of(node: Node, graph: Graph) -> Node | None:
    """The Cast to float32 that alone reads the sums of a MatMulInteger."""
    if type(node.op) is not MatMulInteger or node.post_ops or node.writes[0] in graph.output_names:
        return None
    readers = graph.consumers.get(node.writes[0], ())
    if len(readers) != 1 or not isinstance(readers[0].op, Cast) or readers[0].post_ops:
        return None
    return readers[0] if graph.types[readers[0].writes[0]].dtype is DType.FLOAT32 else None
