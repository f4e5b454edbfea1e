"""Split integer weights: sums of products with weights that have zero points, as sums with int8 weights that have none."""

import dataclasses
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.passes import PassContext, drop_dead_nodes, represented_by
from dovetail_ops_onnx._quantize import per_channel
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.passes._derived import DerivedConstants
from dovetail_ops_onnx.passes._scalings import STORED, scaling_of
from dovetail_ops_onnx.passes.fuse_quantized import HeldDequantizeLinear
from dovetail_ops_onnx.quantized import Quantized, QuantizedStep, Scaling

__all__ = ["split_integer_weights", "split_quantized_weights"]

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
    return _int8(weights, zeros, own, node.op.op_type, derived)


def _int8(weights: Array, zeros: Array, own: Array, key: str, derived: DerivedConstants) -> tuple[Array, ...]:
    """The parts of weights of 8 bits less their zero points, which `own` has such that they broadcast."""
    low, high = (int(weights.min()) - int(zeros.max()), int(weights.max()) - int(zeros.min()))
    count = 1 if low >= -128 and high <= 127 else 2
    if high > 254:
        return ()

    def part(index: int) -> Array:
        whole = weights.astype(np.int16) - own.astype(np.int16)
        half = whole >> 1
        return as_constant((whole if count == 1 else whole - half if index else half).astype(np.int8))

    return tuple(derived.get((key, count, index), (weights, zeros), partial(part, index)) for index in range(count))


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


def split_quantized_weights(graph: Graph, context: PassContext) -> Graph:
    """As `split_integer_weights`, for Conv, MatMul and Gemm of dequantized data and weights, before `fuse_quantized`.

    The sum is one of real numbers. Needs types.
    """
    derived = context.memory.setdefault("split_quantized_weights", DerivedConstants())
    nodes: list[Node] = []
    constants, types = dict(graph.constants), dict(graph.types)
    wide = graph.replace(constants=constants, types=types)  # with what is added later
    for node in graph.nodes:
        found = _Dequantized.of(node, graph)
        parts = () if found is None or context.keeps(found.fused, graph) else found.split(graph, derived, constants, types)
        if not parts or not all(context.keeps(part.fused, wide) for part in parts):
            nodes.append(node)
            continue
        nodes += [one for part in parts for one in (part.weights, part.node)]
        if len(parts) > 1:
            sums = tuple(part.node.outputs[0] for part in parts)
            nodes.append(dataclasses.replace(node, op=Add(), inputs=sums, origins=represented_by(node)))
    made = tuple(nodes)
    return graph if made == graph.nodes else drop_dead_nodes(wide.replace(nodes=made))


@dataclass(frozen=True)
class _Dequantized:
    """A product of dequantized data, stored in `source`, and constant `weights`, with the quantizations of both."""

    node: Node
    source: str
    weights: Node
    scalings: tuple[Scaling, Scaling]

    @staticmethod
    def of(node: Node, graph: Graph) -> "_Dequantized | None":
        if not is_one(node.op, "Conv", "MatMul", "Gemm") or node.post_ops:
            return None
        data, weights = (graph.producers.get(name) for name in node.inputs[:2])
        if data is None or weights is None or not isinstance(data.op, DequantizeLinear):
            return None
        if not isinstance(weights.op, HeldDequantizeLinear):
            return None
        first, second = scaling_of(data, graph), scaling_of(weights, graph)
        if first is None or second is None or not {first.dtype, second.dtype} <= STORED:
            return None
        if (second.zero_point == (0 if second.dtype is DType.INT8 else 128)).all():  # every device takes these
            return None
        return _Dequantized(node, data.inputs[0], weights, (first, second))

    @property
    def fused(self) -> Node:
        """The product alone, as `fuse_quantized` makes it."""
        op = Quantized((QuantizedStep(self.node.op, (0, 1)),), self.scalings, None)
        return Node(self.node.name, op, (self.source, self.weights.inputs[0]), self.node.outputs)

    def split(
        self, graph: Graph, derived: DerivedConstants, constants: dict[str, Array], types: dict[str, Any]
    ) -> tuple["_Dequantized", ...]:
        """One or two with int8 weights without zero points, or nothing. Their constants and types are added to those given."""
        node, (first, own) = self.node, self.scalings
        stored, none = graph.constants[self.weights.inputs[0]], as_constant(np.zeros(own.zero_point.shape, np.int8))
        dims = [-1 if axis == own.axis % stored.ndim else 1 for axis in range(stored.ndim)]
        zeros = own.zero_point.reshape(dims if own.zero_point.size > 1 else ())
        parts = _int8(stored, own.zero_point, zeros, node.op.op_type, derived) if stored.size else ()
        found = list[_Dequantized]()
        for index, part in enumerate(parts):
            name = node.name if len(parts) == 1 else graph.free_name(f"{node.name}.{index}")
            result = node.outputs[0] if len(parts) == 1 else graph.free_name(f"{node.outputs[0]}@{index}")
            held, zero, real = (graph.free_name(f"{node.name}.{kind}{index}") for kind in ("weights", "zero", "real"))
            constants |= {held: part, zero: none}
            types |= {one: TensorType.of(constants[one], known=True) for one in (held, zero)}
            types |= {real: graph.types[self.weights.writes[0]], result: graph.types[node.outputs[0]]}
            weights = Node(real, self.weights.op, (held, self.weights.inputs[1], zero), (real,))
            inputs = (node.inputs[0], real, *(() if index else node.inputs[2:]))
            origins = represented_by(node)
            product = dataclasses.replace(node, name=name, inputs=inputs, outputs=(result,), origins=origins)
            found.append(_Dequantized(product, self.source, weights, (first, Scaling(own.scale, none, own.axis))))
        return tuple(found)
