"""Tabulate bytes: what is computed element by element from one 8-bit number, and rounded to one, is a table of 256 numbers."""

from collections import Counter
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import Binary, DType, Graph, Node, TensorType, as_constant
from dovetail.passes import drop_dead_nodes, represented_by
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.quantize_linear import QuantizeLinear

__all__ = ["tabulate_bytes", "tabulate_chains"]

_BYTES = frozenset({DType.INT8, DType.UINT8})


Keeps = Callable[[Node, Graph], bool]


def tabulate_bytes(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with a ByteTable in place of activations between DequantizeLinear and QuantizeLinear, as far as `keeps` holds.

    A SiLU of static quantization is x * Sigmoid(x) with both and the result quantized: six nodes, each over all elements, become
    one. Nothing else may read what is in between. A chain, in which no value is read twice, is left to `fuse_quantized`, which
    puts it behind a product. Needs types and schedule order.
    """
    return _tabulated(graph, keeps, chains=False)


def tabulate_chains(graph: Graph, keeps: Keeps) -> Graph:
    """As `tabulate_bytes`, chains and changes of the quantization too: those that `fuse_quantized` found no product for."""
    return _tabulated(graph, keeps, chains=True)


def _tabulated(graph: Graph, keeps: Keeps, *, chains: bool) -> Graph:
    numbers = _numbers(graph)
    found = _functions(graph, numbers)
    order = {one.node.name: place for place, one in enumerate(found.values())}
    changed: dict[str, Node] = {}
    constants, types = dict(graph.constants), dict(graph.types)
    for one in found.values():
        if not (isinstance(one.node.op, QuantizeLinear) and (one.computes or chains) and _is_read(one, found, graph)):
            continue
        cone = _cone(one, found, order)
        if not ((chains or _forks(cone)) and _is_alone(one, cone, found, graph)):
            continue
        node, table = one.node, graph.free_name(f"{one.node.name}.table")
        origins = represented_by(*cone)
        from dovetail_ops_onnx.byte_table import ByteTable  # here, because few models have such activations

        made = Node(node.name, ByteTable(), (one.source, table), node.outputs, (), origins)
        constants[table] = as_constant(_table(one, cone, graph, numbers))
        types[table] = TensorType.of(constants[table], known=True)
        if keeps(made, graph.replace(constants=constants, types=types)):
            changed[node.name] = made
    if not changed:
        return graph
    nodes = tuple(changed.get(node.name, node) for node in graph.nodes)
    return drop_dead_nodes(graph.replace(nodes=nodes, constants=constants, types=types))


@dataclass(frozen=True, slots=True)
class _Function:
    """A value that depends on one byte, the element of `source` in the same place. `computes` is False for what only scales."""

    node: Node
    source: str
    computes: bool


def _numbers(graph: Graph) -> Mapping[str, NDArray[Any]]:
    """The values that are one known number, quantized ones too."""
    known = {name: array for name, array in graph.constants.items() if array.size == 1}
    for node in graph.nodes:
        if isinstance(node.op, DequantizeLinear) and not node.post_ops and all(n in known for n in node.inputs if n):
            known[node.writes[0]] = node.op.reference(*(known[name] for name in node.inputs if name))
    return known


def _functions(graph: Graph, numbers: Container[str]) -> dict[str, _Function]:
    """By the names of values."""
    found: dict[str, _Function] = {}
    for node in graph.nodes:
        one = _function(node, found, graph, numbers)
        if one is not None:
            found[node.outputs[0]] = one
    return found


def _function(node: Node, found: Mapping[str, _Function], graph: Graph, numbers: Container[str]) -> _Function | None:
    if len(node.writes) != 1 or node.post_ops or not node.inputs:
        return None
    first, types = node.inputs[0], graph.types
    if isinstance(node.op, DequantizeLinear | QuantizeLinear):
        if not all(name in graph.constants and types[name].size == 1 for name in node.inputs[1:] if name):
            return None
        if isinstance(node.op, QuantizeLinear):
            known = found.get(first)
            is_byte = types[node.outputs[0]].dtype in _BYTES and types[first].dtype is DType.FLOAT32
            return _Function(node, known.source, known.computes) if known is not None and is_byte else None
        if first in graph.constants or types[first].dtype not in _BYTES or types[node.outputs[0]].dtype is not DType.FLOAT32:
            return None
        known = found.get(first)
        return _Function(node, first, False) if known is None else _Function(node, known.source, known.computes)
    sources = {found[name].source for name in node.inputs if name in found}
    if len(sources) != 1 or not _is_elementwise(node, found, graph, numbers):
        return None
    return _Function(node, sources.pop(), True)


def _is_elementwise(node: Node, found: Mapping[str, _Function], graph: Graph, numbers: Container[str]) -> bool:
    """Whether the operator computes each element of the inputs that are functions, with single constant numbers."""
    given = [graph.types[name] if name else None for name in node.inputs]
    result = graph.types[node.outputs[0]]
    if result.dtype is not DType.FLOAT32 or not all(not name or name in found or name in numbers for name in node.inputs):
        return False
    if any(t is not None and name in found and t.dims != result.dims for name, t in zip(node.inputs, given, strict=True)):
        return False
    return node.op.in_place or any(
        (chain := node.op.post_ops(given, node.inputs, index)) is not None
        and all(p.operand in node.inputs for p in chain if isinstance(p, Binary))
        for index, name in enumerate(node.inputs)
        if name in found
    )


def _cone(one: _Function, found: Mapping[str, _Function], order: Mapping[str, int]) -> list[Node]:
    """The nodes between the source and the value, in schedule order."""
    nodes: dict[str, Node] = {}
    waiting = [one.node]
    while waiting:
        node = waiting.pop()
        nodes[node.name] = node
        waiting += [found[name].node for name in node.inputs if name in found and name != one.source]
    return sorted(nodes.values(), key=lambda node: order[node.name])


def _forks(cone: Sequence[Node]) -> bool:
    """Whether a value is read twice."""
    sources = {node.inputs[0] for node in cone if isinstance(node.op, DequantizeLinear)}
    values = sources | {node.outputs[0] for node in cone}
    return max(Counter(name for node in cone for name in node.inputs if name in values).values()) > 1


def _is_read(one: _Function, found: Mapping[str, _Function], graph: Graph) -> bool:
    """Whether something reads the value, dequantized or not, that is not itself a function of the same byte."""
    (value,) = one.node.writes
    if value in graph.outputs:
        return True
    for reader in graph.consumers.get(value, ()):
        known = found.get(reader.outputs[0])
        if known is None or known.source != one.source:
            return True
        if isinstance(one.node.op, QuantizeLinear) and _is_read(known, found, graph):
            return True
    return False


def _is_alone(one: _Function, cone: Sequence[Node], found: Mapping[str, _Function], graph: Graph) -> bool:
    """Whether nothing reads the numbers in between but functions of the same byte, so that they need not be computed."""
    return all(
        graph.types[node.outputs[0]].dtype in _BYTES or not _is_read(found[node.outputs[0]], found, graph)
        for node in cone
        if not (isinstance(node.op, DequantizeLinear) and node.inputs[0] == one.source)
    )


def _table(one: _Function, cone: Sequence[Node], graph: Graph, numbers: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """The results for all bytes."""
    values = {one.source: np.arange(256, dtype=np.uint8).view(graph.types[one.source].dtype.numpy)}

    def given(name: str) -> Any:
        return values.get(name) if name in values or not name else numbers[name].reshape(())

    for node in cone:
        values[node.outputs[0]] = np.asarray(node.op.reference(*map(given, node.inputs)))
    return values[one.node.outputs[0]]
