"""Fuse integer products: MatMulInteger and ConvInteger whose sums become float32 give them so, where a device has a kernel."""

import dataclasses
from collections.abc import Callable, Iterator

from dovetail.graph import AbstractOperator, DType, Graph, Node
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.mat_mul_integer_to_float import MatMulIntegerToFloat
from dovetail_ops_onnx.mul import Mul

__all__ = ["fuse_integer_products"]


def fuse_integer_products(graph: Graph, keeps: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with each product or convolution of integers that only a Cast to float32 reads as one operator with that Cast.

    So is the product with two scales behind it, as dynamic quantization has it, where the device takes these. Without them it
    comes before the first reader of its result, so that what else that reads (the product of the scales) is there when the
    fusion of post-ops asks for it. Needs types and schedule order.
    """
    before: dict[str, Node] = {}
    gone: set[str] = set()
    for node in graph.nodes:
        cast = _cast_of(node, graph)
        for fused, merged, place in () if cast is None else _forms(node, cast, graph):
            if keeps(fused, graph):
                before[place.name] = fused
                gone |= {one.name for one in merged}
                break
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += [before[node.name]] if node.name in before else []
        nodes += [] if node.name in gone else [node]
    return graph.replace(nodes=tuple(nodes)) if gone else graph


def _forms(node: Node, cast: Node, graph: Graph) -> Iterator[tuple[Node, tuple[Node, ...], Node]]:
    """The forms of a product and its Cast, the shortest first, with the nodes that each replaces, and the next node."""
    readers = () if cast.outputs[0] in graph.output_names else graph.consumers.get(cast.outputs[0], ())
    if len(readers) == 1 and (scales := _scales(node, cast, readers[0], graph)) is not None:
        found, *names = scales
        inputs = (*node.inputs, *("",) * (4 - len(node.inputs)), *names)
        merged = node, cast, found, readers[0]
        yield _fused(merged, inputs), merged, readers[0]
    yield _fused((node, cast), node.inputs), (node, cast), readers[0] if readers else cast


def _fused(merged: tuple[Node, ...], inputs: tuple[str, ...]) -> Node:
    origins = tuple(dict.fromkeys(name for node in merged for name in node.origins))
    op = _to_float(merged[0].op)
    return dataclasses.replace(merged[0], op=op, inputs=inputs, outputs=merged[-1].outputs, origins=origins)


def _to_float(op: AbstractOperator) -> AbstractOperator:
    if not isinstance(op, ConvInteger):
        return MatMulIntegerToFloat()
    return ConvIntegerToFloat(**{name: getattr(op, name) for name in ConvInteger.attributes})


def _scales(product: Node, cast: Node, reader: Node, graph: Graph) -> tuple[Node, str, str] | None:
    """The product of two scales by which the only reader of a Cast multiplies, a computed one and a constant, and these two."""
    real, types = cast.outputs[0], graph.types
    if type(reader.op) is not Mul or reader.inputs.count(real) != 1 or types[reader.outputs[0]].dims != types[real].dims:
        return None
    factor = reader.inputs[reader.inputs[0] == real]
    both = graph.producers.get(factor)
    if both is None or type(both.op) is not Mul or factor in graph.output_names or len(graph.consumers[factor]) > 1:
        return None
    computed, constant = sorted(both.inputs, key=graph.constants.__contains__)
    one, other = types[computed], types[constant]
    is_scale = one.size == 1 and (other.size == 1 or _lies_along(product, other.dims, types[real].dims))
    return (both, computed, constant) if is_scale and other.value is not None and one.value is None else None


def _lies_along(product: Node, scales: tuple[int, ...], result: tuple[int, ...]) -> bool:
    """Whether there is one scale for each column, or each channel of a convolution."""
    if isinstance(product.op, MatMulInteger):
        return scales == result[-1:]
    channels = (result[1], *(1,) * (len(result) - 2))
    return scales in (channels, (1, *channels))


def _cast_of(node: Node, graph: Graph) -> Node | None:
    """The Cast to float32 that alone reads the sums of integers."""
    if type(node.op) not in (MatMulInteger, ConvInteger) or node.post_ops or node.writes[0] in graph.output_names:
        return None
    readers = graph.consumers.get(node.writes[0], ())
    if len(readers) != 1 or not isinstance(readers[0].op, Cast) or readers[0].post_ops:
        return None
    return readers[0] if graph.types[readers[0].writes[0]].dtype is DType.FLOAT32 else None
