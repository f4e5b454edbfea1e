"""Fuse integer products: MatMulInteger and ConvInteger whose sums become float32 give them so, where a device has a kernel."""

import dataclasses
from collections.abc import Callable, Iterator

from dovetail.graph import AbstractOperator, DType, Graph, Node
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.mat_mul_integer_to_float import MatMulIntegerToFloat
from dovetail_ops_onnx.mul import Mul

__all__ = ["fuse_integer_products"]

_SUMS = (ConvInteger, MatMulInteger)


def fuse_integer_products(graph: Graph, keeps: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with each product or convolution of integers that only a Cast to float32 reads as one operator with that Cast.

    So is the product with two scales behind it, as dynamic quantization has it, where the device takes these. Without them it
    comes before the first reader of its result, so that what else that reads (the product of the scales) is there when the
    fusion of post-ops asks for it. The two products of weights with a zero point (`split_integer_weights`) become real numbers
    before they are added up: as exact up to 2^24, and the second adds the first as a post-op. Needs types and schedule order.
    """
    graph = _with_real_sums(graph, keeps)
    before: dict[str, Node] = {}
    gone: set[str] = set()
    for node in graph.nodes:
        cast = _cast_of(node, graph)
        for fused, merged, place in () if cast is None or type(node.op) is Add else _forms(node, cast, graph):
            if keeps(fused, graph):
                before[place.name] = fused
                gone |= {one.name for one in merged}
                break
    nodes: list[Node] = []
    for node in graph.nodes:
        nodes += [before[node.name]] if node.name in before else []
        nodes += [] if node.name in gone else [node]
    return graph.replace(nodes=tuple(nodes)) if gone else graph


def _with_real_sums(graph: Graph, keeps: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with a sum of float32 in place of each one of two products of integers that only a Cast to float32 reads."""
    changed: dict[str, Node] = {}
    gone: set[str] = set()
    wide = graph
    for node in graph.nodes:
        cast = _cast_of(node, graph)
        products = [graph.producers.get(name) for name in node.inputs] if cast is not None and type(node.op) is Add else ()
        halves = [one for one in products if one is not None and _is_read_once(one, graph) and type(one.op) in _SUMS]
        if cast is None or len(halves) != 2 or halves[0] is halves[1]:
            continue
        names = [graph.free_name(f"{one.outputs[0]}@real") for one in halves]
        made = [dataclasses.replace(_fused((one,), one.inputs), outputs=(name,)) for one, name in zip(halves, names, strict=True)]
        wider = wide.replace(types={**wide.types, **dict.fromkeys(names, graph.types[cast.outputs[0]])})
        if all(keeps(one, wider) for one in made):
            wide = wider
            origins = tuple(dict.fromkeys((*node.origins, *cast.origins)))
            total = dataclasses.replace(node, inputs=tuple(names), outputs=cast.outputs, origins=origins)
            changed |= {halves[0].name: made[0], halves[1].name: made[1], node.name: total}
            gone.add(cast.name)
    nodes = tuple(changed.get(node.name, node) for node in graph.nodes if node.name not in gone)
    return wide.replace(nodes=nodes) if gone else graph


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
    """The Cast to float32 that alone reads sums of integers."""
    if type(node.op) not in (*_SUMS, Add) or not _is_read_once(node, graph):
        return None
    (reader,) = graph.consumers[node.writes[0]]
    if not isinstance(reader.op, Cast) or reader.post_ops:
        return None
    return reader if graph.types[reader.writes[0]].dtype is DType.FLOAT32 else None


def _is_read_once(node: Node, graph: Graph) -> bool:
    """Whether a node without post-ops has one reader, and is not an output."""
    return not node.post_ops and node.writes[0] not in graph.output_names and len(graph.consumers.get(node.writes[0], ())) == 1
