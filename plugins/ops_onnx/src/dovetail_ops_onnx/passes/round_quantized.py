"""Round quantized: QuantizeLinear that DequantizeLinear undoes becomes steps on real numbers, which devices fuse with others."""

import dataclasses
from collections.abc import Callable, Iterator

import numpy as np

from dovetail.graph import DType, Graph, Node
from dovetail.passes import drop_dead_nodes, represented_by
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.passes import is_one
from dovetail_ops_onnx.passes._scalings import is_move, scaling_of
from dovetail_ops_onnx.quantize_linear import QuantizeLinear
from dovetail_ops_onnx.quantized import Scaling

__all__ = ["round_quantized"]

_STORED = frozenset({DType.INT16, DType.UINT16})
"""No device multiplies such numbers."""


def round_quantized(graph: Graph, keeps: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with x / scale, rounded, limited and times scale for each x that is stored in 16 bits only to be real again.

    Numbers are the same, but for NaN, which stays NaN. A value that was rounded so before, and only moved since, stays as it is:
    float32 gives back each whole number of 16 bits from its product with the scale. Needs types and schedule order.
    """
    nodes: list[Node] = []
    types = dict(graph.types)
    rounded: dict[str, Scaling] = {}
    same: dict[str, str] = {}
    for node in graph.nodes:
        if not same.keys().isdisjoint(node.reads):
            node = dataclasses.replace(node, inputs=tuple(same.get(name, name) for name in node.inputs))
        pair = _pair(node, graph)
        if pair is None:
            nodes.append(node)
            if node.inputs and node.inputs[0] in rounded and is_move(node.op) and not is_one(node.op, "Concat"):
                rounded.update(dict.fromkeys(node.writes, rounded[node.inputs[0]]))
            continue
        x, (value,) = same.get(pair[0].inputs[0], pair[0].inputs[0]), node.writes
        before, scaling = rounded.get(x), pair[1]
        if before is not None and before.equals(scaling) and value not in graph.outputs:
            same[value] = x
            continue
        steps = tuple(_steps(x, pair[0], node, scaling, graph))
        made = {name: graph.types[value] for step in steps for name in step.writes}
        scope = graph.replace(types={**types, **made})
        if all(keeps(step, scope) for step in steps):
            types.update(made)
            nodes += steps
            rounded[value] = scaling
        else:
            nodes.append(node)
    return drop_dead_nodes(graph.replace(nodes=tuple(nodes), types=types)) if len(types) > len(graph.types) else graph


def _pair(node: Node, graph: Graph) -> tuple[Node, Scaling] | None:
    """The QuantizeLinear that a DequantizeLinear alone reads and undoes, and the parameters of both."""
    source = graph.producers.get(node.inputs[0]) if isinstance(node.op, DequantizeLinear) else None
    if source is None or not isinstance(source.op, QuantizeLinear) or source.op.precision not in (0, DType.FLOAT32.onnx):
        return None
    stored, x = source.writes[0], graph.types[source.inputs[0]]
    if len(graph.consumers[stored]) > 1 or stored in graph.outputs or graph.types[node.writes[0]].dtype is not DType.FLOAT32:
        return None
    found, other = scaling_of(source, graph), scaling_of(node, graph)
    if found is None or other is None or not found.is_single or not found.equals(other):
        return None
    return (source, found) if x.dtype is DType.FLOAT32 and x.rank >= found.scale.ndim and found.dtype in _STORED else None


def _steps(x: str, source: Node, node: Node, scaling: Scaling, graph: Graph) -> Iterator[Node]:
    """The nodes that compute what both give; the scale is an input, because a product with its reciprocal rounds otherwise."""
    from dovetail_ops_onnx.clip import Clip_6  # here, because few models have numbers of 16 bits
    from dovetail_ops_onnx.div import Div
    from dovetail_ops_onnx.mul import Mul
    from dovetail_ops_onnx.round import Round

    limits, zero, (value,) = np.iinfo(scaling.dtype.numpy), int(scaling.zero_point.item()), node.writes
    origins = represented_by(source, node)
    quotient, whole, limited = (graph.free_name(f"{value}@{step}") for step in ("quotient", "whole", "limited"))
    scale = source.inputs[1]
    yield Node(quotient, Div(), (x, scale), (quotient,), (), origins)
    yield Node(whole, Round(), (quotient,), (whole,), (), origins)
    clip = Clip_6(min=float(limits.min - zero), max=float(limits.max - zero))
    yield Node(limited, clip, (whole,), (limited,), (), origins)
    yield Node(node.name, Mul(), (limited, scale), (value,), (), origins)
