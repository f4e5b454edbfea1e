"""Compose operators that only move rows of one value, such as the shifted windows of Swin: one Gather of its rows."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import Graph, Node, TensorType, as_constant
from dovetail.passes import drop_dead_nodes, represented_by
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.passes._patterns import Keeps
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["compose_moves"]

LEAST = 64
"""Bytes of a row: an index has 8, and finding an element takes longer than moving it."""

_MOVES = (Concat, Slice, Transpose)


@dataclass(frozen=True)
class _Chain:
    """The nodes, in schedule order, that make a value of one other, and how many of them move something."""

    source: str
    nodes: tuple[Node, ...]
    moves: int


def compose_moves(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with two or more Slice, Concat and Transpose of one value, and the reshapes between them, as one Gather.

    All leave the elements of rows together, which are the values' last axes or equal parts of these, and have `LEAST` bytes or
    more. Nobody else reads a value in between. It runs for models of one size. Needs types and schedule order.
    """
    found: dict[int, tuple[Node, ...]] = {}
    constants, types = dict(graph.constants), dict(graph.types)
    covered: set[int] = set()
    position = {id(node): i for i, node in enumerate(graph.nodes)}
    for node in reversed(graph.nodes):
        if id(node) in covered or not _moves(node, graph):
            continue
        chain = _chain(node, graph, position)
        rows = None if chain is None or chain.moves < 2 else _rows(chain, graph)
        if chain is None or rows is None:
            continue
        nodes, arrays = _gathered(node, chain, rows, graph, types)
        if not keeps(nodes[1], graph.replace(types=types)):
            continue
        constants |= arrays
        found[id(node)] = nodes
        covered |= {id(one) for one in chain.nodes}
    if not found:
        return graph
    new = tuple(one for node in graph.nodes for one in found.get(id(node), (node,)))
    return drop_dead_nodes(graph.replace(nodes=new, constants=constants, types=types))


def _moves(node: Node, graph: Graph) -> bool:
    """Whether it moves whole rows along the last axis of its result: a Slice or Transpose leaves that axis as it is."""
    op = node.op
    if (
        type(op) not in _MOVES
        or node.post_ops
        or (any(graph.types[name].value is None for name in node.inputs[1:] if name) and not isinstance(op, Concat))
    ):
        return False
    rank = graph.types[node.outputs[0]].rank
    if isinstance(op, Transpose):
        return op.order(rank)[-1] == rank - 1
    return not isinstance(op, Slice) or graph.types[node.inputs[0]].dims[-1] == graph.types[node.outputs[0]].dims[-1]


def _chain(last: Node, graph: Graph, position: Mapping[int, int]) -> _Chain | None:
    """The longest chain that ends in the node."""
    inside: list[Node] = []
    open_values = {last.outputs[0]}
    found: _Chain | None = None
    moves = 0
    while True:
        makers = {id(n): n for name in open_values if (n := graph.producers.get(name)) is not None}
        node = max(makers.values(), key=lambda one: position[id(one)], default=None)
        if node is None or not (node is last or _absorbs(node, graph, inside)):
            return found
        moves += not node.op.is_view
        inside.append(node)
        open_values.remove(node.outputs[0])
        open_values.update(node.inputs if isinstance(node.op, Concat) else node.inputs[:1])
        if len(open_values) == 1:
            (source,) = open_values
            found = _Chain(source, tuple(reversed(inside)), moves)


def _absorbs(node: Node, graph: Graph, inside: list[Node]) -> bool:
    """Whether a node that makes a value of a chain may be in it."""
    if len(node.writes) != 1 or not node.outputs[0] or node.outputs[0] in graph.output_names or node.post_ops:
        return False
    if not all(any(reader is one for one in inside) for reader in graph.consumers[node.outputs[0]]):
        return False
    return node.op.is_view or _moves(node, graph)


def _rows(chain: _Chain, graph: Graph) -> NDArray[Any] | None:
    """For each row of the result, in its shape, the number of the source's row; None where rows do not stay together."""
    values = [chain.source, *(node.outputs[0] for node in chain.nodes)]
    types = [graph.types[name] for name in values]
    if any(not tensor.rank or not tensor.size for tensor in types):
        return None
    width = math.gcd(*(tensor.dims[-1] for tensor in types))
    if width * types[0].dtype.itemsize < LEAST or types[0].value is not None:
        return None
    dims = {name: (*tensor.dims[:-1], tensor.dims[-1] // width) for name, tensor in zip(values, types, strict=True)}
    found = {chain.source: np.arange(math.prod(dims[chain.source])).reshape(dims[chain.source])}
    for node in chain.nodes:
        given = [found[name] if name in found else graph.constants[name] for name in node.inputs if name]
        moved = given[0].reshape(dims[node.outputs[0]]) if node.op.is_view else node.op.reference(*given)
        found[node.outputs[0]] = moved
    result: NDArray[Any] = found[chain.nodes[-1].outputs[0]]
    return result if result.shape[-1:] != (1,) else result[..., 0]


def _gathered(
    node: Node, chain: _Chain, rows: NDArray[Any], graph: Graph, types: dict[str, TensorType]
) -> tuple[tuple[Node, ...], dict[str, NDArray[Any]]]:
    """The rows of the source as a matrix, the Gather, and the result in its shape; and the constants that they read."""
    source, result = graph.types[chain.source], graph.types[node.outputs[0]]
    width = result.size // rows.size
    matrix, name = source.with_shape((source.size // width, width)), node.name
    free = {
        end: graph.free_name(f"{name}.{end}") for end in ("matrix", "matrix:0", "matrix.shape", "rows", "rows:0", "shape", "view")
    }
    arrays = {free["matrix.shape"]: np.asarray(matrix.dims, np.int64), free["rows"]: rows}
    origins = represented_by(*chain.nodes)
    view = Node(free["matrix"], Reshape(allowzero=True), (chain.source, free["matrix.shape"]), (free["matrix:0"],))
    types[view.outputs[0]] = matrix
    gather = Node(name, Gather(), (view.outputs[0], free["rows"]), node.outputs, (), origins)
    nodes: tuple[Node, ...] = (view, gather)
    if (*rows.shape, width) != result.dims:
        between = free["rows:0"]
        types[between] = result.with_shape((*rows.shape, width))
        arrays[free["shape"]] = np.asarray(result.dims, np.int64)
        last = Node(free["view"], Reshape(allowzero=True), (between, free["shape"]), node.outputs)
        nodes = (view, Node(name, gather.op, gather.inputs, (between,), (), origins), last)
    arrays = {key: as_constant(array) for key, array in arrays.items()}
    types |= {key: TensorType.of(array, known=True) for key, array in arrays.items()}
    return nodes, arrays
