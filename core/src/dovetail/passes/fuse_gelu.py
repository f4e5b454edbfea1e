"""Recognise GELU as frameworks export it: five elementwise operators become the operator Gelu."""

import math
from collections.abc import Sequence

import numpy as np

from dovetail.graph.dtype import DType
from dovetail.graph.model import Graph, Node
from dovetail.ops.gelu import Gelu

__all__ = ["fuse_gelu"]


def fuse_gelu(graph: Graph) -> Graph:
    """The graph with x * 0.5 * (1 + erf(x / sqrt(2))) in float32, in any order of its factors, as one node.

    Needs types. The nodes that only led to the result are dead afterwards.
    """
    found = {}
    for node in graph.nodes:
        if _is(node, "Erf") and not node.post_ops:
            match = _match(graph, node)
            if match is not None:
                chain, source = match
                origins = tuple(dict.fromkeys(name for one in chain for name in one.origins or (one.name,)))
                found[chain[-1].name] = Node(chain[-1].name, Gelu(), (source,), chain[-1].outputs, (), origins)
    return graph.replace(nodes=tuple(found.get(node.name, node) for node in graph.nodes)) if found else graph


def _match(graph: Graph, erf: Node) -> tuple[Sequence[Node], str] | None:
    """The nodes on the way, the one that gives the result last, and the value x."""
    source = _scaled_source(graph, erf.inputs[0])
    plus = _reader(graph, erf, "Add")
    if source is None or plus is None or not _constant(graph, _other(plus, erf.outputs[0]), 1.0):
        return None
    chain, factors = [graph.producers[erf.inputs[0]], erf, plus], [source, 0.5]
    while factors:
        after = _reader(graph, chain[-1], "Mul")
        if after is None:
            return None
        for factor in _factors(graph, _other(after, chain[-1].outputs[0]), source):
            if factor not in factors:
                return None
            factors.remove(factor)
        chain.append(after)
    return (chain, source) if graph.types[source] == graph.types[chain[-1].outputs[0]] else None


def _scaled_source(graph: Graph, name: str) -> str | None:
    """x of a value x / sqrt(2)."""
    node = graph.producers.get(name)
    if node is None or node.post_ops:
        return None
    if _is(node, "Div") and _constant(graph, node.inputs[1], math.sqrt(2)):
        return _floating(graph, node.inputs[0])
    if _is(node, "Mul"):
        for one, other in (node.inputs, node.inputs[::-1]):
            if _constant(graph, other, math.sqrt(0.5)):
                return _floating(graph, one)
    return None


def _floating(graph: Graph, name: str) -> str | None:
    return name if graph.types[name].dtype is DType.FLOAT32 else None


def _factors(graph: Graph, name: str, source: str) -> Sequence[str | float]:
    """What a factor of the product is made of: x, 0.5, or both; something else as it is."""
    if _constant(graph, name, 0.5):
        return (0.5,)
    node = graph.producers.get(name)
    if node is None or not _is(node, "Mul") or node.post_ops or source not in node.inputs:
        return (name,)
    return (source, 0.5) if _constant(graph, _other(node, source), 0.5) else (name,)


def _reader(graph: Graph, node: Node, key: str) -> Node | None:
    """The only reader of a node's result, if it is an operator `key` that reads it once."""
    value = node.outputs[0]
    readers = graph.consumers.get(value, ())
    if len(readers) != 1 or value in graph.outputs:
        return None
    reader = readers[0]
    return reader if _is(reader, key) and not reader.post_ops and reader.inputs.count(value) == 1 else None


def _is(node: Node, key: str) -> bool:
    """Whether a node is the standard operator `key`, by its definition and not only by name."""
    return node.op.key == key and type(node.op).__module__.startswith("dovetail.ops.")


def _other(node: Node, name: str) -> str:
    return node.inputs[1] if node.inputs[0] == name else node.inputs[0]


def _constant(graph: Graph, name: str, value: float) -> bool:
    content = graph.types[name].value if name in graph.types else None
    return content is not None and content.size == 1 and bool(np.isclose(content.reshape(()), value, rtol=1e-6, atol=0))
