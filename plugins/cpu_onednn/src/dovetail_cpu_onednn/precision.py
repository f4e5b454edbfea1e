"""Lower precision: which nodes of a float32 graph compute with bfloat16, and the conversions at their borders."""

import dataclasses
from collections.abc import Callable

from dovetail.device import Convert, DType, Eltwise, Graph, Node, TensorType, TypedNode

__all__ = ["lower"]

Accepts = Callable[[TypedNode], bool]
"""Whether a primitive runs the node with these types."""

WORTH = 64
"""So many operations for each element of an input make up for converting it: float32 runs at about 100 operations in the time
in which an element is read, rounded and written (ResNet's first convolution has 1,568, 4 x 4 patches into 10 maps have 20)."""


def lower(graph: Graph, accepts: Accepts) -> Graph:
    """The graph with products, and the nodes between them, in bfloat16. Inputs and outputs keep their types.

    Low are convolutions and matrix products that are worth the conversion of their inputs, and nodes that read a low value, each
    if `accepts` it so. Sums are float32 within a primitive; constants stay float32, but that kernels round their weights.
    """
    pass_ = _Lowering(graph, accepts)
    for node in graph.nodes:
        pass_.decide(node)
    for node in graph.nodes:
        pass_.add(node)
    outputs = tuple(pass_.get(name, low=False) for name in graph.outputs)
    return graph.replace(nodes=tuple(pass_.nodes), outputs=outputs, types=pass_.types)


class _Lowering:
    """First `decide` for all nodes, then `add` all: the nodes and types of the new graph."""

    def __init__(self, graph: Graph, accepts: Accepts) -> None:
        self._graph = graph
        self._accepts = accepts
        self._low: set[str] = set()
        self.nodes: list[Node] = []
        self.types = dict(graph.types)

    def decide(self, node: Node) -> None:
        """Whether the node is low; then what it writes is."""
        if len(node.writes) == 1 and self._graph.types[node.writes[0]].dtype is DType.FLOAT32 and self._is_low(node):
            self._low.add(node.writes[0])

    def _is_low(self, node: Node) -> bool:
        fed = any(name in self._low for name in node.reads)
        if node.op.is_view and not node.post_ops:
            return node.inputs[0] in self._low
        typed = self._typed(node, DType.BFLOAT16)
        if not (fed or (node.op.magnitude == "sum_of_products" and self._pays(node))):
            return False
        return self._accepts(typed)

    def _pays(self, node: Node) -> bool:
        """Whether the node computes enough for the inputs that would be converted."""
        typed = TypedNode.of(node, self._graph)
        converted = sum(self._graph.types[n].size for n in node.reads if self._is_data(n) and n not in self._low)
        return node.op.flops(typed.inputs, typed.outputs) >= WORTH * converted

    def _is_data(self, name: str) -> bool:
        return name not in self._graph.constants and self._graph.types[name].dtype is DType.FLOAT32

    def _typed(self, node: Node, result: DType) -> TypedNode:
        """The node as it is when it is low: what is computed comes in bfloat16."""

        def lowered(name: str) -> TensorType | None:
            tensor = self._graph.type_of(name)
            return tensor.with_dtype(DType.BFLOAT16) if tensor is not None and self._is_data(name) else tensor

        operands = tuple(t for name in node.operands if (t := lowered(name)) is not None)
        outputs = tuple(self._graph.types[name].with_dtype(result) for name in node.writes)
        return TypedNode(node, tuple(lowered(name) for name in node.inputs), outputs, operands)

    def add(self, node: Node) -> None:
        """Append the node with conversions of what it reads in the other type."""
        low = len(node.writes) == 1 and node.writes[0] in self._low
        names = {name: self.get(name, low=low) for name in node.reads if self._is_data(name)}
        post_ops = tuple(
            p if isinstance(p, Eltwise) else dataclasses.replace(p, operand=names.get(p.operand, p.operand))
            for p in node.post_ops
        )
        inputs = tuple(names.get(name, name) for name in node.inputs)
        self.nodes.append(dataclasses.replace(node, inputs=inputs, post_ops=post_ops))
        if not low:
            return
        result = node.writes[0]
        if self._ends_here(node):
            self._low.remove(result)
        else:
            self.types[result] = self.types[result].with_dtype(DType.BFLOAT16)

    def _ends_here(self, node: Node) -> bool:
        """Whether nobody wants the result in bfloat16, and the node can write it in float32 itself."""
        result = node.writes[0]
        readers = self._graph.consumers.get(result, ())
        wanted = any(len(reader.writes) == 1 and reader.writes[0] in self._low for reader in readers)
        return not wanted and not node.op.is_view and self._accepts(self._typed(node, DType.FLOAT32))

    def get(self, name: str, *, low: bool) -> str:
        """The value in bfloat16 or float32, converted if it is not there yet."""
        if (name in self._low) is low or not self._is_data(name):
            return name
        to = DType.BFLOAT16 if low else DType.FLOAT32
        converted = self._graph.free_name(f"{name}@{to}")
        if converted not in self.types:
            self.types[converted] = self._graph.types[name].with_dtype(to)
            self.nodes.append(Node(self._graph.free_name(f"convert:{converted}"), Convert(to=to), (name,), (converted,)))
        return converted
