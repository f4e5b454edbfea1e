"""Sums with a transposed product: the product adds the other value, which is transposed back, where that is a view."""

import dataclasses
from collections.abc import Callable, Mapping

from dovetail.device import Binary, Graph, Node, TensorType, TypedNode
from dovetail.passes import represented_by
from dovetail_gpu_opencl.kernels._merging import Makers
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["add_before_transposes"]

_PRODUCTS = ("mat_mul", "conv")
"""The stems of operators that add as much for nothing."""


def add_before_transposes(graph: Graph, accepts: Callable[[TypedNode], bool]) -> Graph:
    """The graph with (a b + c^T)^T in place of (a b)^T + c, where the transposes move nothing in some layout.

    So does a ConvNeXt, whose channels are last for its products and first for its convolutions. `accepts` says whether a kernel
    runs the product with the sum.
    """
    makers = {node.writes[0]: node for node in graph.nodes if len(node.writes) == 1}
    types, changed = dict(graph.types), dict[str, tuple[Node, ...]]()
    for node in graph.nodes:
        for found in _products(graph, makers, node):
            product, turned, addend = found
            if product.name in changed:
                continue
            name = graph.free_name(f"{addend}:before {node.name}")
            types[name] = dataclasses.replace(types[product.writes[0]], dtype=types[addend].dtype, value=None)
            added = dataclasses.replace(
                product, post_ops=(*product.post_ops, Binary("add", name)), origins=represented_by(product, node)
            )
            if not _is_accepted(added, types, accepts):
                continue
            assert isinstance(turned.op, Transpose)
            order = turned.op.order(types[addend].rank)
            back = Transpose(perm=tuple(order.index(axis) for axis in range(len(order))))
            before = Node(graph.free_name(f"{turned.name}:back"), back, (addend,), (name,), (), (turned.name,))
            after = dataclasses.replace(turned, outputs=node.writes)
            changed |= {product.name: (), turned.name: (), node.name: (before, added, after)}
            break
    if not changed:
        return graph
    kept = (one for node in graph.nodes for one in changed.get(node.name, (node,)))
    return graph.replace(nodes=tuple(kept), types=types)


def _is_accepted(node: Node, types: Mapping[str, TensorType], accepts: Callable[[TypedNode], bool]) -> bool:
    inputs = tuple(types[name] if name else None for name in node.inputs)
    return accepts(TypedNode(node, inputs, tuple(types[n] for n in node.writes), tuple(types[n] for n in node.operands)))


def _products(graph: Graph, makers: Makers, node: Node) -> list[tuple[Node, Node, str]]:
    """The products of which the node is a sum with another value as large: product, transpose, and that value."""
    if (
        not isinstance(node.op, Add)
        or node.post_ops
        or any(graph.types[n].dims != graph.types[node.writes[0]].dims for n in node.inputs)
    ):
        return []
    found = []
    for name, addend in (node.inputs, node.inputs[::-1]):
        turned = makers.get(name)
        if turned is None or not isinstance(turned.op, Transpose) or not turned.op.unmoved(graph.types[name].rank):
            continue
        product = makers.get(turned.inputs[0])
        alone = all(n not in graph.output_names and len(graph.consumers[n]) == 1 for n in (name, turned.inputs[0]))
        is_product = product is not None and product.op.stem in _PRODUCTS and not turned.post_ops
        if product is not None and is_product and alone and name != addend and addend not in graph.constants:
            found.append((product, turned, addend))
    return found
