"""Simplify Einsum: two terms whose labels are those of a batch, of rows, of columns and of a sum are a matrix product."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import Graph, Node, TensorType, as_constant
from dovetail_ops_onnx.einsum import Einsum
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["simplify_einsum"]

_Labels = tuple[str, ...]
_Step = tuple[MatMul | Reshape | Transpose, tuple[int, ...]]
"""An operator, and the dimensions of its result."""


def simplify_einsum(graph: Graph) -> Graph:
    """The graph with MatMul, and transposes and reshapes around it, for each Einsum of two floats that is one. Needs types."""
    found = {node.name: product for node in graph.nodes if (product := _product_of(node, graph)) is not None}
    if not found:
        return graph
    writer = _Writer(graph)
    for node in graph.nodes:
        if node.name in found:
            writer.write(node, found[node.name])
        else:
            writer.nodes.append(node)
    return writer.graph()


@dataclass(frozen=True, slots=True)
class _Product:
    """Input `first` with the labels [batch, rows, summed], times the other input with [batch, summed, columns]."""

    first: int
    terms: tuple[_Labels, _Labels]
    output: _Labels
    batch: _Labels
    rows: _Labels
    summed: _Labels
    columns: _Labels
    sizes: Mapping[str, int]

    def arranged(self, left: bool) -> Iterator[_Step]:
        """The steps from an input to a stack of matrices."""
        term = self.terms[self.first if left else 1 - self.first]
        groups = [*((label,) for label in self.batch), *((self.rows, self.summed) if left else (self.summed, self.columns))]
        order = tuple(label for group in groups for label in group)
        if order != term:
            yield Transpose(perm=tuple(term.index(label) for label in order)), self._dims(order)
        if any(len(group) != 1 for group in groups):
            yield Reshape(allowzero=True), tuple(math.prod(self._dims(group)) for group in groups)

    def computed(self) -> Iterator[_Step]:
        """The steps from two stacks of matrices to the result."""
        batch, found = self._dims(self.batch), (*self.batch, *self.rows, *self.columns)
        yield MatMul(), (*batch, math.prod(self._dims(self.rows)), math.prod(self._dims(self.columns)))
        if len(self.rows) != 1 or len(self.columns) != 1:
            yield Reshape(allowzero=True), self._dims(found)
        if found != self.output:
            yield Transpose(perm=tuple(found.index(label) for label in self.output)), self._dims(self.output)

    def _dims(self, labels: _Labels) -> tuple[int, ...]:
        return tuple(self.sizes[label] for label in labels)


def _product_of(node: Node, graph: Graph) -> _Product | None:
    op = node.op
    if not isinstance(op, Einsum) or len(node.inputs) != 2 or node.post_ops:
        return None
    types = [graph.types[name] for name in node.inputs]
    if not types[0].dtype.is_float:
        return None
    one, other, output = map(tuple, op.labels(types))
    sizes, others = (dict(zip(term, t.dims, strict=True)) for term, t in zip((one, other), types, strict=True))
    shared = [label for label in one if label in others]
    summed = tuple(label for label in shared if label not in output)
    if not summed or any(sizes[label] != others[label] for label in shared):
        return None
    if any(len(set(term)) < len(term) or not {*output, *summed}.issuperset(term) for term in (one, other)):
        return None
    batch = tuple(label for label in output if label in shared)
    own, others_own = (tuple(label for label in output if label in term and label not in shared) for term in (one, other))
    # The term whose labels come first in the output gives the rows, so that the result mostly is in order.
    swap = bool(own and others_own) and output.index(others_own[0]) < output.index(own[0])
    rows, columns = (others_own, own) if swap else (own, others_own)
    return _Product(int(swap), (one, other), output, batch, rows, summed, columns, {**sizes, **others})


class _Writer:
    """The nodes of the new graph, with the types and constants that are new."""

    def __init__(self, graph: Graph) -> None:
        self.nodes: list[Node] = []
        self._types: dict[str, TensorType] = {}
        self._constants: dict[str, NDArray[Any]] = {}
        self._graph = graph

    def graph(self) -> Graph:
        """The new graph."""
        constants = {**self._graph.constants, **self._constants}
        return self._graph.replace(nodes=tuple(self.nodes), constants=constants, types={**self._graph.types, **self._types})

    def write(self, node: Node, product: _Product) -> None:
        """The nodes of an Einsum; the last one has its name and gives its result."""
        dtype, inputs = self._graph.types[node.inputs[0]].dtype, []
        for side, index, left in (("rows", product.first, True), ("columns", 1 - product.first, False)):
            name = node.inputs[index]
            for step in product.arranged(left):
                name = self._add(node, f"{node.name}.{side}", (name,), step, dtype)
            inputs.append(name)
        *steps, (last, dims) = product.computed()
        for step in steps:
            inputs = [self._add(node, node.name, inputs, step, dtype)]
        self.nodes.append(dataclasses.replace(node, op=last, inputs=(*inputs, *self._shape(node.name, last, dims))))

    def _add(self, origin: Node, start: str, inputs: Sequence[str], step: _Step, dtype: Any) -> str:
        """A node for a step; the name of its result."""
        op, dims = step
        name = self._graph.free_name(f"{start}.{op.stem}")
        self._types[name] = TensorType(dtype, dims)
        self.nodes.append(Node(name, op, (*inputs, *self._shape(name, op, dims)), (name,), (), origin.origins or (origin.name,)))
        return name

    def _shape(self, name: str, op: object, dims: Sequence[int]) -> Sequence[str]:
        """The second input of a Reshape; none for other operators."""
        if not isinstance(op, Reshape):
            return ()
        shape = self._graph.free_name(f"{name}.shape")
        self._constants[shape] = as_constant(np.asarray(dims, np.int64))
        self._types[shape] = TensorType.of(self._constants[shape], known=True)
        return (shape,)
