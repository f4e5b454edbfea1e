"""Split integer weights: sums of products with weights that have zero points, as sums with int8 weights that have none."""

import dataclasses
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.passes import PassContext
from dovetail_ops_onnx._quantize import per_channel
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.passes._derived import DerivedConstants

__all__ = ["split_integer_weights"]

Array = NDArray[Any]


def split_integer_weights(graph: Graph, context: PassContext) -> Graph:
    """The graph with int8 weights for ConvInteger and MatMulInteger whose weights have zero points that no kernel takes.

    Differences between weights and zero points that int8 lacks are the sum of two halves: two nodes, and their sum in int32,
    which is as exact. Nodes stay where the device has a kernel for them as they are, or none for the halves. Needs types.
    """
    derived = context.memory.setdefault("split_integer_weights", DerivedConstants())
    nodes: list[Node] = []
    wide = graph
    for node in graph.nodes:
        is_product = is_one(node.op, "ConvInteger", "MatMulInteger")
        parts = _parts(node, graph, derived) if is_product and not context.keeps(node, graph) else ()
        if not parts:
            nodes.append(node)
            continue
        made = _Made.of(node, graph, parts)
        wider = wide.replace(constants={**wide.constants, **made.constants}, types={**wide.types, **made.types})
        if all(context.keeps(product, wider) for product in made.products):
            wide = wider
            nodes += made.products if len(parts) == 1 else (*made.products, made.sum(node, graph))
        else:
            nodes.append(node)
    return wide if wide is graph else wide.replace(nodes=tuple(nodes))


def _parts(node: Node, graph: Graph, derived: DerivedConstants) -> tuple[Array, ...]:
    """One or two int8 arrays whose sum is that of the constant weights less their constant zero points; else nothing."""
    if len(node.inputs) < 4 or not node.inputs[3] or node.post_ops:
        return ()
    sources = [graph.constants.get(name) for name in (node.inputs[1], node.inputs[3])]
    weights, zeros = sources
    if weights is None or zeros is None or not weights.size or (zeros.ndim > 1 and zeros.size > 1):
        return ()
    own = per_channel(zeros, weights.ndim) if is_one(node.op, "ConvInteger") else zeros.reshape(-1)
    low, high = (int(weights.min()) - int(zeros.max()), int(weights.max()) - int(zeros.min()))
    count = 1 if low >= -128 and high <= 127 else 2
    if high > 254:
        return ()

    def part(index: int) -> Array:
        whole = weights.astype(np.int16) - own.astype(np.int16)
        half = whole >> 1
        return as_constant((whole if count == 1 else whole - half if index else half).astype(np.int8))

    key = node.op.op_type, count
    return tuple(derived.get((*key, index), (weights, zeros), partial(part, index)) for index in range(count))


@dataclass(frozen=True)
class _Made:
    """The products by the parts of the weights, with the constants and types that are new."""

    products: tuple[Node, ...]
    constants: dict[str, Array]
    types: dict[str, TensorType]

    @staticmethod
    def of(node: Node, graph: Graph, parts: tuple[Array, ...]) -> "_Made":
        products: list[Node] = []
        constants: dict[str, Array] = {}
        types: dict[str, TensorType] = {}
        for index, part in enumerate(parts):
            name = graph.free_name(f"{node.inputs[1]}@{node.name}.{index}")
            result = node.outputs[0] if len(parts) == 1 else graph.free_name(f"{node.outputs[0]}@{index}")
            constants[name] = part
            types[name] = TensorType(DType.INT8, part.shape, constants[name])
            types[result] = graph.types[node.outputs[0]]
            inputs = (node.inputs[0], name, *node.inputs[2:3]) if node.inputs[2] else (node.inputs[0], name)
            part_name = graph.free_name(f"{node.name}.{index}")
            products.append(dataclasses.replace(node, name=part_name, inputs=inputs, outputs=(result,)))
        return _Made(tuple(products), constants, types)

    def sum(self, node: Node, graph: Graph) -> Node:
        """The node that adds up the results of both."""
        return dataclasses.replace(
            node,
            name=graph.free_name(f"{node.name}.sum"),
            op=Add(),
            inputs=tuple(one.outputs[0] for one in self.products),
            outputs=node.outputs,
        )
