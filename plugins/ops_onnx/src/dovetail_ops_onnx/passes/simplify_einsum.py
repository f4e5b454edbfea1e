"""Simplify Einsum: more terms in pairs; two whose labels are those of a batch, of rows, of columns and of a sum as a product."""

import dataclasses
import math
import string
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.passes import represented_by
from dovetail_ops_onnx.einsum import Einsum
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.transpose import Transpose

__all__ = ["simplify_einsum"]

_Labels = tuple[str, ...]
_Term = tuple[str, _Labels]
"""The name of a value, and its labels."""
_Step = tuple[MatMul | Reshape | Transpose, tuple[int, ...]]
"""An operator, and the dimensions of its result."""


def simplify_einsum(graph: Graph) -> Graph:
    """The graph with MatMul, and transposes and reshapes around it, for each Einsum of two floats that is one. Needs types."""
    graph = _in_pairs(graph)
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


def _in_pairs(graph: Graph) -> Graph:
    """The graph with an Einsum for each pair in place of those with more terms, which visit every combination of labels."""
    nodes: list[Node] = []
    types: dict[str, TensorType] = {}
    for node in graph.nodes:
        terms = _terms_of(node, graph)
        if terms is None:
            nodes.append(node)
            continue
        *inputs, output = terms
        sizes = {label: n for name, term in zip(node.inputs, inputs, strict=True) for label, n in _named(term, graph.types[name])}
        letters = dict(zip(sizes, string.ascii_letters, strict=False))
        rest, step = list(zip(node.inputs, inputs, strict=True)), 0
        while len(rest) > 2:
            one, other, labels = _best_pair(rest, output)
            name = graph.free_name(f"{node.name}.pair{step}")
            types[name] = graph.types[node.inputs[0]].with_shape(tuple(sizes[label] for label in labels))
            op = Einsum(equation=_equation((one[1], other[1]), labels, letters))
            nodes.append(Node(name, op, (one[0], other[0]), (name,), (), represented_by(node)))
            rest = [pair for pair in rest if pair is not one and pair is not other] + [(name, labels)]
            step += 1
        op = Einsum(equation=_equation([term for _, term in rest], output, letters))
        nodes.append(dataclasses.replace(node, op=op, inputs=tuple(name for name, _ in rest)))
    return graph.replace(nodes=tuple(nodes), types={**graph.types, **types}) if types else graph


def _terms_of(node: Node, graph: Graph) -> list[_Labels] | None:
    """The labels of the inputs and of the output where pairs can be multiplied first in the same precision; else None."""
    op = node.op
    if not isinstance(op, Einsum) or len(node.inputs) < 3 or node.post_ops:
        return None
    types = [graph.types[name] for name in node.inputs]
    if types[0].dtype not in (DType.FLOAT32, DType.FLOAT64):
        return None
    terms = [tuple(labels) for labels in op.labels(types)]
    named = {pair for term, t in zip(terms, types, strict=False) for pair in _named(term, t)}
    labels = {label for label, _ in named}
    if len(named) > len(labels) or len(labels) > len(string.ascii_letters) or any(len(set(term)) < len(term) for term in terms):
        return None  # broadcasts, or has diagonals
    return terms


def _named(term: _Labels, tensor: TensorType) -> list[tuple[str, int]]:
    return list(zip(term, tensor.dims, strict=True))


def _best_pair(rest: Sequence[_Term], output: _Labels) -> tuple[_Term, _Term, _Labels]:
    """The pair whose product has the fewest labels, as whatever sizes they have, and these labels; the first of equal ones."""

    def product(one: _Term, other: _Term) -> _Labels:
        needed = {*output, *(label for term in rest if term is not one and term is not other for label in term[1])}
        return tuple(label for label in dict.fromkeys((*one[1], *other[1])) if label in needed)

    pairs = [(one, other, product(one, other)) for one, other in combinations(rest, 2)]
    return min(pairs, key=lambda pair: (len(pair[2]), len(pair[2]) - len({*pair[0][1], *pair[1][1]})))


def _equation(terms: Sequence[_Labels], output: _Labels, letters: Mapping[str, str]) -> str:
    left, right = (",".join("".join(letters[label] for label in term) for term in part) for part in (terms, (output,)))
    return f"{left}->{right}"


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
        self.nodes.append(Node(name, op, (*inputs, *self._shape(name, op, dims)), (name,), (), represented_by(origin)))
        return name

    def _shape(self, name: str, op: object, dims: Sequence[int]) -> Sequence[str]:
        """The second input of a Reshape; none for other operators."""
        if not isinstance(op, Reshape):
            return ()
        shape = self._graph.free_name(f"{name}.shape")
        self._constants[shape] = as_constant(np.asarray(dims, np.int64))
        self._types[shape] = TensorType.of(self._constants[shape], known=True)
        return (shape,)
