"""Split norm: BatchNormalization of quantized convolutions becomes a product and a sum, which these take over."""

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.passes import drop_dead_nodes, represented_by
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.passes.fold_affine import of_norm
from dovetail_ops_onnx.passes.fuse_quantized import HeldDequantizeLinear, evaluated

__all__ = ["split_norm"]


def split_norm(graph: Graph) -> Graph:
    """The graph with Mul and Add in place of BatchNormalization with constant statistics behind a quantized convolution.

    Tools that quantize a model before its norms are folded round between the two, so that the weights cannot take them over.
    `fuse_quantized` takes them over from a DequantizeLinear, real sums of a convolution of integers as post-ops. The factors are
    computed in float64 and rounded once. Needs types.
    """
    nodes: list[Node] = []
    constants, types = dict(graph.constants), dict(graph.types)
    for node in graph.nodes:
        made = _split(node, graph)
        if made is None:
            nodes.append(node)
            continue
        names = tuple(graph.free_name(f"{node.name}.{kind}") for kind in ("factor", "shift", "scaled"))
        constants |= dict(zip(names, made, strict=False))
        types |= {name: TensorType.of(array, known=True) for name, array in zip(names, made, strict=False)}
        types[names[2]] = graph.types[node.writes[0]]
        origins = represented_by(node)
        nodes.append(Node(names[2], Mul(), (node.inputs[0], names[0]), names[2:], (), origins))
        nodes.append(Node(node.name, Add(), (names[2], names[1]), node.outputs, (), origins))
    if len(nodes) == len(graph.nodes):
        return graph
    return drop_dead_nodes(graph.replace(nodes=tuple(nodes), constants=constants, types=types))


def _split(norm: Node, graph: Graph) -> tuple[NDArray[np.generic], NDArray[np.generic]] | None:
    """The factors and shifts of the channels as arrays that broadcast to the result, or None where the form is another."""
    source = graph.producers.get(norm.inputs[0])
    if source is None or not (_is_stored(source) or _is_sum_of_integers(source, graph)):
        return None
    if len(norm.inputs) < 5 or graph.types[norm.inputs[0]].dtype is not DType.FLOAT32:
        return None
    known = {name: graph.constants[name] for name in norm.inputs[1:5] if name in graph.constants}
    makers = {name: node for name in norm.inputs[1:5] if (node := graph.producers.get(name)) is not None}
    known |= {name: evaluated(n, graph.constants) for name, n in makers.items() if isinstance(n.op, HeldDequantizeLinear)}
    affine = of_norm(norm, graph.replace(constants=known))
    if affine is None:
        return None
    dims = (-1, *(1,) * (graph.types[norm.inputs[0]].rank - 2))
    with np.errstate(over="ignore"):
        factor, shift = (as_constant(array.astype(np.float32).reshape(dims)) for array in (affine.factor, affine.shift))
    return (factor, shift) if np.isfinite(factor).all() and np.isfinite(shift).all() else None


def _is_stored(node: Node) -> bool:
    return isinstance(node.op, DequantizeLinear) and not isinstance(node.op, HeldDequantizeLinear)


def _is_sum_of_integers(node: Node, graph: Graph) -> bool:
    """Whether a node is a convolution of integers, or its product with scales, perhaps of two that are added up."""
    found: Node | None = node
    for kind in (Mul, Add):
        if found is not None and type(found.op) is kind:
            found = graph.producers.get(found.inputs[0]) or graph.producers.get(found.inputs[1])
    return found is not None and isinstance(found.op, ConvIntegerToFloat)
