"""Attention each step of which is quantized: the operator, and the pass that makes it of products and a softmax."""

import dataclasses
from collections.abc import Callable
from typing import Any, ClassVar

from dovetail.dataclass import dataclass
from dovetail.device import AbstractOperator, Graph, Node, TensorType, TypedNode
from dovetail.op import GraphBuilder, Port, evaluate_composition
from dovetail.passes import drop_dead_nodes, represented_by
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.quantized import Quantized
from dovetail_ops_onnx.softmax import Softmax
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["QuantizedAttention", "merge_quantized_attention"]

_HEADS, _KEYS = (0, 2, 1, 3), (0, 2, 3, 1)
"""From [batch, length, heads, head] to the factors of products: queries and values, and keys."""


@dataclass(frozen=True, eq=False)
class QuantizedAttention(AbstractOperator):
    """Scores of queries by keys, their softmax, and the product of these weights by values, each stored in 8 bits.

    Queries [batch, length, heads, head], keys and values [batch, keys, heads, head] and the result are stored numbers, too.
    `operands` are those of the steps behind the first product, which are in the order of [batch, heads, length, keys].
    """

    domain: ClassVar[str] = "dovetail.opencl"
    op_type: ClassVar[str] = "QuantizedAttention"
    stem: ClassVar[str] = "quantized_attention"
    inputs: ClassVar[tuple[Port, ...]] = (Port("Q"), Port("K"), Port("V"), Port("operands", variadic=True))
    outputs: ClassVar[tuple[Port, ...]] = (Port("Y"),)
    scores: Quantized
    weights: Quantized
    values: Quantized

    def parts(
        self, q: TensorType, k: TensorType, v: TensorType, *operands: TensorType
    ) -> list[tuple[tuple[TensorType, ...], TensorType]]:
        """The types of the inputs and the result of each of the three operators."""
        queries, keys, values = (_permuted(t, p) for t, p in ((q, _HEADS), (k, _KEYS), (v, _HEADS)))
        scores = self.scores.infer(queries, keys, *operands)
        weights = self.weights.infer(scores)
        found = self.values.infer(weights, values)
        return [((queries, keys, *operands), scores), ((scores,), weights), ((weights, values), found)]

    def infer(self, *inputs: TensorType) -> TensorType:
        found = self.parts(*inputs)[-1][1]
        return _permuted(found, _HEADS)

    def compose(self, g: GraphBuilder, q: str, k: str, v: str, *operands: str) -> str:
        queries, keys, values = (g.node(Transpose(perm=p), x) for x, p in ((q, _HEADS), (k, _KEYS), (v, _HEADS)))
        weights = g.node(self.weights, g.node(self.scores, queries, keys, *operands))
        found: str = g.node(Transpose(perm=_HEADS), g.node(self.values, weights, values))
        return found

    def reference(self, *inputs: Any, **_: Any) -> Any:
        """The composition by the references of its operators."""
        return evaluate_composition(self, inputs)


def merge_quantized_attention(graph: Graph, accepts: Callable[[TypedNode], bool]) -> Graph:
    """The graph with one node in place of the transposes, products and softmax of an attention between stored numbers."""
    found: dict[str, Node] = {}
    for node in graph.nodes:
        merged = _attention(node, graph) if isinstance(node.op, Transpose) else None
        if merged is not None and accepts(TypedNode.of(merged, graph)):
            found[node.name] = merged
    if not found:
        return graph
    return drop_dead_nodes(graph.replace(nodes=tuple(found.get(node.name, node) for node in graph.nodes)))


def _attention(last: Node, graph: Graph) -> Node | None:
    """The node in place of those that end with a transpose of heads."""
    values = _maker(last.inputs[0], graph, MatMul) if _moves(last, _HEADS) else None
    weights = None if values is None or len(values.inputs) > 2 else _maker(values.inputs[0], graph, Softmax)
    scores = None if weights is None or len(weights.inputs) > 1 else _maker(weights.inputs[0], graph, MatMul)
    if values is None or weights is None or scores is None:
        return None
    made = ((scores.inputs[0], _HEADS), (scores.inputs[1], _KEYS), (values.inputs[1], _HEADS))
    sources = [producer.inputs[0] for name, p in made if (producer := graph.producers.get(name)) and _moves(producer, p)]
    if len(sources) < len(made):
        return None
    assert isinstance(scores.op, Quantized)
    assert isinstance(weights.op, Quantized)
    assert isinstance(values.op, Quantized)
    op = QuantizedAttention(scores.op, weights.op, values.op)
    origins = represented_by(scores, weights, values, last)
    return dataclasses.replace(last, op=op, inputs=(*sources, *scores.inputs[2:]), origins=origins)


def _permuted(t: TensorType, perm: tuple[int, ...]) -> TensorType:
    return t.with_shape(tuple(t.dims[i] for i in perm))


def _maker(name: str, graph: Graph, main: type[AbstractOperator]) -> Node | None:
    """The node that makes a stored value which one node reads, if it is quantized and begins with the operator `main`."""
    node = graph.producers.get(name)
    if node is None or name in graph.outputs or len(graph.consumers.get(name, ())) != 1 or node.post_ops:
        return None
    if not isinstance(node.op, Quantized) or type(node.op.main) is not main or node.op.result is None:
        return None
    return None if None in node.op.scalings[: len(node.op.main.inputs)] else node


def _moves(node: Node, perm: tuple[int, ...]) -> bool:
    """Whether the node is this transpose."""
    return isinstance(node.op, Transpose) and tuple(node.op.perm or ()) == perm and not node.post_ops
