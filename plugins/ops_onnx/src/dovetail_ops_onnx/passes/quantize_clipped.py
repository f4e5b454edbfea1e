"""Quantize clipped: Clip of stored numbers, as tools write fewer bits than 8, becomes Clip of the real numbers before."""

import dataclasses
from collections.abc import Callable

import numpy as np

from dovetail.graph import DType, Graph, Node
from dovetail.passes import drop_dead_nodes, represented_by
from dovetail_ops_onnx.clip import Clip, Clip_6
from dovetail_ops_onnx.passes._scalings import STORED, scaling_of
from dovetail_ops_onnx.quantize_linear import QuantizeLinear

__all__ = ["quantize_clipped"]


def quantize_clipped(graph: Graph, keeps: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with constant limits of QuantizeLinear's result as limits of its input, where both have one scale.

    Brevitas writes 2 to 7 bits so (QCDQ). Numbers are the same, but for NaN, whose stored number QuantizeLinear does not define:
    each limit times the scale is stored as that limit, and storing keeps the order. Needs types and schedule order.
    """
    nodes: list[Node] = []
    types = dict(graph.types)
    for node in graph.nodes:
        source = graph.producers.get(node.inputs[0]) if isinstance(node.op, Clip) and not node.post_ops else None
        limits = None if source is None else _limits(node, source, graph)
        if source is None or limits is None:
            nodes.append(node)
            continue
        (value,), x = node.writes, source.inputs[0]
        limited, origins = (
            graph.free_name(f"{value}@limited"),
            represented_by(source, node),
        )
        clip = Clip_6(min=limits[0], max=limits[1])
        steps = (
            Node(limited, clip, (x,), (limited,), (), origins),
            dataclasses.replace(source, name=node.name, inputs=(limited, *source.inputs[1:]), outputs=(value,), origins=origins),
        )
        made = {limited: graph.types[x].with_shape(graph.types[x].shape)}
        scope = graph.replace(types={**types, **made})
        if all(keeps(step, scope) for step in steps):
            types.update(made)
            nodes += steps
        else:
            nodes.append(node)
    return drop_dead_nodes(graph.replace(nodes=tuple(nodes), types=types)) if len(types) > len(graph.types) else graph


def _limits(node: Node, source: Node, graph: Graph) -> tuple[float, float] | None:
    """The limits of the real numbers, or None where the form is another."""
    if not isinstance(source.op, QuantizeLinear) or graph.types[source.inputs[0]].dtype is not DType.FLOAT32:
        return None
    found, x = scaling_of(source, graph), graph.types[source.inputs[0]]
    if found is None or not found.is_single or found.dtype not in STORED or x.rank < found.scale.ndim:
        return None
    if any(name and name not in graph.constants for name in node.inputs[1:]):
        return None
    reach, zero = np.iinfo(found.dtype.numpy), int(found.zero_point.item())
    given = [*node.inputs[1:], "", ""][:2]
    low, high = (
        int(graph.constants[name].item()) if name else int(end) for name, end in zip(given, (reach.min, reach.max), strict=True)
    )
    scale = np.float32(found.scale.item())
    return float(np.float32(min(low, high) - zero) * scale), float(np.float32(high - zero) * scale)
