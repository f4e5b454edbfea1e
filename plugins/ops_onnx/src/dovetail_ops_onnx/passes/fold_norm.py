"""Fold BatchNormalization into the product by a constant matrix before it, through reshapes and transposes between the two."""

import dataclasses
from collections.abc import MutableMapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import Graph, Node, TensorType, as_constant
from dovetail.passes import represented_by
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.passes._derived import DerivedConstants
from dovetail_ops_onnx.passes.fold_affine import Affine, holds, of_norm
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["fold_norm"]

Array = NDArray[Any]


@dataclass(frozen=True)
class _Chain:
    """A product by a constant matrix, whose columns are channels, the Add of a constant row or none, and the views after it."""

    product: Node
    added: Node | None
    views: tuple[Node, ...]


def fold_norm(graph: Graph, memory: MutableMapping[str, Any]) -> Graph:
    """The graph with each foldable BatchNormalization as other weights of a MatMul and a row that is added to its result.

    Between the two may be an Add of a constant row, and reshapes and transposes that leave the channels one axis; for reshapes
    it is the last. Needs types. A pair folds when weights and statistics are constants, nobody else reads a value in between,
    and the type of the weights holds the new ones. Computed in float64 and rounded once. Plans for several shapes share them.
    """
    derived = memory.setdefault("fold_norm", DerivedConstants())
    constants, types = dict(graph.constants), dict(graph.types)
    replaced: dict[int, tuple[Node, ...]] = {}
    for node in graph.nodes:
        affine = of_norm(node, graph)
        chain = None if affine is None else _chain(affine.value, graph)
        if affine is None or chain is None:
            continue
        weights, row = _folded(chain, node, affine, graph, derived)
        if not holds(graph.constants[chain.product.inputs[1]].T, weights.T, row):
            continue
        names = (graph.free_name(f"{chain.product.name}.{kind}*{node.name}") for kind in ("weights", "row"))
        arrays = dict(zip(names, (weights, row), strict=True))
        constants.update(arrays)
        types |= {name: TensorType.of(array, known=True) for name, array in arrays.items()}
        new = _nodes(chain, node, graph, *arrays)
        types[new[0].outputs[0]] = graph.types[chain.product.outputs[0]]
        old = [one for one in (chain.product, chain.added, *chain.views) if one is not None]
        replaced |= {id(one): () for one in old} | {id(node): new}
    if not replaced:
        return graph
    nodes = tuple(new for node in graph.nodes for new in replaced.get(id(node), (node,)))
    return graph.replace(nodes=nodes, constants=constants, types=types)


def _nodes(chain: _Chain, norm: Node, graph: Graph, weights: str, row: str) -> tuple[Node, ...]:
    """The nodes in place of a chain and the normalization after it; the last one writes its result."""
    added, between = chain.added or chain.product, graph.free_name(f"{chain.product.name}.product")
    product = dataclasses.replace(chain.product, inputs=(chain.product.inputs[0], weights), outputs=(between,))
    origins = represented_by(added, norm)
    last = Node(graph.free_name(f"{norm.name}.row"), Add(), (between, row), added.outputs, (), origins)
    *others, final = (last, *chain.views)
    return (product, *others, dataclasses.replace(final, outputs=norm.outputs))


def _chain(value: str, graph: Graph) -> _Chain | None:
    """How the product's result became the value whose axis 1 has the channels; None where it did not, or is read elsewhere."""
    views: list[Node] = []
    axis = 1
    while (node := _only_producer(value, graph)) is not None and (node.op.is_view or isinstance(node.op, Transpose)):
        source, result = graph.types[node.inputs[0]], graph.types[value]
        if isinstance(node.op, Transpose):
            axis = node.op.order(source.rank)[axis]
        elif axis == result.rank - 1 and source.rank and source.dims[-1] == result.dims[-1]:
            axis = source.rank - 1
        else:
            return None
        views.insert(0, node)
        value = node.inputs[0]
    added = node if node is not None and type(node.op) is Add else None
    if added is not None:
        value = next((name for name in added.inputs if name not in graph.constants), "")
        row = graph.constants.get(added.inputs[1 - added.inputs.index(value)]) if value else None
        node = _only_producer(value, graph)
        if row is None or row.size not in (1, *row.shape[-1:]) or graph.types[value] != graph.types[added.outputs[0]]:
            return None
    if node is None or type(node.op) is not MatMul or axis != graph.types[node.outputs[0]].rank - 1:
        return None
    weights = graph.constants.get(node.inputs[1])
    return _Chain(node, added, tuple(views)) if weights is not None and weights.ndim == 2 and weights.dtype.kind == "f" else None


def _only_producer(value: str, graph: Graph) -> Node | None:
    """The node that gives a value to a single reader."""
    node = graph.producers.get(value)
    alone = node is not None and not node.post_ops and len(graph.consumers[value]) == 1 and value not in graph.output_names
    return node if alone else None


def _folded(chain: _Chain, norm: Node, affine: Affine, graph: Graph, derived: DerivedConstants) -> tuple[Array, Array]:
    """The new weights and the new row."""
    weights = graph.constants[chain.product.inputs[1]]
    rows = [] if chain.added is None else [graph.constants[name] for name in chain.added.inputs if name in graph.constants]
    sources = [weights, *rows, *(graph.constants[name] for name in norm.inputs[1:5])]
    key = (len(rows), *(getattr(norm.op, name) for name in norm.op.attributes))

    def scaled() -> Array:
        with np.errstate(over="ignore"):
            return as_constant((weights * affine.factor).astype(weights.dtype))

    def shifted() -> Array:
        row = rows[0].reshape(-1).astype(np.float64) if rows else np.zeros(())
        with np.errstate(over="ignore"):
            return as_constant(np.broadcast_to(row * affine.factor + affine.shift, weights.shape[1:]).astype(weights.dtype))

    return derived.get(("weights", *key), sources, scaled), derived.get(("row", *key), sources, shifted)
