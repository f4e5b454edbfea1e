"""Split rows into digits: rows times a matrix in blocks is products of 8-bit numbers, where a device has a kernel for them."""

from collections.abc import Callable, Hashable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.passes import represented_by
from dovetail_ops_onnx.mat_mul_blocks import MatMulBlocks, once
from dovetail_ops_onnx.mat_mul_digits import MatMulDigits
from dovetail_ops_onnx.row_digits import EXACT, RowDigits

__all__ = ["split_rows", "would_split_rows"]

Array = NDArray[Any]

_WIDTH = 64
"""Columns of A that a product takes at least: oneDNN fills up fewer."""

_LEAST_BLOCK = 16
"""The smallest blocks. Each block has rows of its own in a product, in which the other blocks' columns are zeros."""

_LEAST = 1 << 15
"""Bytes of a matrix from which on a product takes more time than the row's digits."""

_FOLLOWED = 64
"""Bytes of a column in a block up to which machine code is faster, as processors fetch the next lines of few rows in time."""

_MOST = 1 << 28
"""Bytes of a model's matrices up to which they are split: in 8 bits, which kernels keep besides, they take 2.4 times as much."""


def split_rows(graph: Graph, keeps: Callable[[Node, Graph], bool]) -> Graph:
    """The graph with MatMulDigits in place of each MatMulBlocks that a device takes so, and one RowDigits for equal rows.

    Rows keep the precision of float32, but where the product allows int8 activations: they are rounded to one digit then. Models
    of more than `_MOST` bytes of matrices stay as they are, which takes less memory. Needs types and schedule order.
    """
    if _is_large(graph):
        return graph
    known: dict[Hashable, Node] = {}
    kept: dict[Hashable, bool] = {}
    nodes: list[Node] = []
    types, constants = dict(graph.types), dict(graph.constants)
    for node in graph.nodes:
        split = _Split.of(node, graph)
        if split is None:
            nodes.append(node)
            continue
        rows = known.get(split.key, split.rows)
        product, (new, offsets) = split.product(rows), split.values(rows, graph)
        if split.kind not in kept:  # models repeat their layers
            given = graph.replace(types={**types, **new}, constants={**constants, **offsets})
            kept[split.kind] = keeps(rows, given) and keeps(product, given)
        if not kept[split.kind]:
            nodes.append(node)
            continue
        nodes += [product] if split.key in known else [rows, product]
        known[split.key] = rows
        types.update(new)
        constants.update(offsets)
    return graph.replace(nodes=tuple(nodes), types=types, constants=constants) if known else graph


def would_split_rows(graph: Graph, keeps: Callable[[Node, Graph], bool]) -> bool:
    """Whether `split_rows` changes the graph, or would not have split a product in it: a plan for other sizes was taken over.

    Products of the same types are taken alike, so one of them is asked about.
    """
    firsts: dict[Hashable, Node] = {}
    for node in graph.nodes:
        if isinstance(op := node.op, MatMulBlocks | MatMulDigits):
            types = tuple(graph.types[name] if name else None for name in node.inputs)
            attributes = tuple(getattr(op, name) for name in op.attributes)
            firsts.setdefault((type(op), attributes, bool(node.post_ops), types), node)
    if not all(keeps(node, graph) for node in firsts.values() if isinstance(node.op, MatMulDigits)):
        return True
    whole = [node for node in firsts.values() if isinstance(node.op, MatMulBlocks)]
    if not whole or _is_large(graph):
        return False
    return any(split_rows(graph.replace(nodes=(node,)), keeps).nodes != (node,) for node in whole)


def _is_large(graph: Graph) -> bool:
    matrices = {node.inputs[1] for node in graph.nodes if isinstance(node.op, MatMulBlocks)}
    return sum(graph.types[name].nbytes for name in matrices if graph.types[name].is_static) > _MOST


@dataclass(frozen=True)
class _Split:
    """A product in digits: the node that splits its rows, the operator that multiplies them, and the offsets, if there are any.

    `types` are those of the rows, of the numbers and of the scales, `name` is that of the offsets.
    """

    node: Node
    rows: Node
    op: MatMulDigits
    offsets: Array | None
    types: tuple[TensorType, ...]
    name: str

    @staticmethod
    def of(node: Node, graph: Graph) -> "_Split | None":
        """None for other nodes, and for products that take no time or whose weights are not known."""
        op = node.op
        if not isinstance(op, MatMulBlocks) or node.post_ops or op.bits > 8 or op.block_size < _LEAST_BLOCK:
            return None
        a, q, group = graph.types[node.inputs[0]], graph.types[node.inputs[1]], max(1, _WIDTH // op.block_size)
        weights = [graph.constants[name] for name in node.inputs[1:] if name in graph.constants]
        if len(weights) < sum(map(bool, node.inputs[1:])) or q.size < _LEAST:
            return None
        if a.dtype is not DType.FLOAT32 or not a.size or _stays_whole(op, a, graph.types[node.inputs[2]].dims[1]):
            return None
        centred = _centred(op.bits, *weights)
        if centred is None:
            return None
        centre, offsets = centred
        rows = RowDigits(op.block_size, 1 if op.activation_bits == 8 else EXACT, group)
        names = ("digits", "factors", "sums")[: 2 if offsets is None else 3]
        outputs = tuple(graph.free_name(f"{node.name}.{name}") for name in names)
        splitting = Node(graph.free_name(f"{node.name}.row"), rows, node.inputs[:1], outputs, (), represented_by(node))
        types = tuple(graph.types[name] for name in node.inputs[:3])
        product = MatMulDigits(op.bits, op.block_size, group, centre)
        return _Split(node, splitting, product, offsets, types, graph.free_name(f"{node.name}.offsets"))

    @property
    def key(self) -> tuple[Hashable, ...]:
        """Equal for products that take the same digits."""
        op = self.rows.op
        return self.rows.inputs, len(self.rows.outputs), *(getattr(op, name) for name in op.attributes)

    @property
    def kind(self) -> Hashable:
        """Equal for products that a device takes alike."""
        return self.key[1:], self.op.bits, self.op.centre, self.types

    def product(self, rows: Node) -> Node:
        """The node that multiplies what `rows` gives."""
        added = () if self.offsets is None else (rows.outputs[2], self.name)
        return replace(self.node, op=self.op, inputs=(*rows.outputs[:2], *self.node.inputs[1:3], *added))

    def values(self, rows: Node, graph: Graph) -> tuple[dict[str, TensorType], dict[str, Array]]:
        """The types of the digits and of the offsets, and the offsets."""
        op = rows.op
        assert isinstance(op, RowDigits)
        types = dict(zip(rows.outputs, op.infer(graph.types[rows.inputs[0]]), strict=False))
        if self.offsets is None:
            return types, {}
        constant = as_constant(self.offsets)
        return {**types, self.name: TensorType.of(constant, known=True)}, {self.name: constant}


def _stays_whole(op: MatMulBlocks, a: TensorType, columns: int) -> bool:
    """Whether machine code takes less. Rows that may be rounded have digits, which plans for other numbers of rows take over."""
    return op.activation_bits == 0 and op.packed_rows <= _FOLLOWED and op.has_machine_code(a, columns)


def _centred(bits: int, q: Array, scales: Array, offsets: Array | None = None) -> tuple[int, Array | None] | None:
    """The number that each is reduced by so that it fits int8, and the offsets that are left; None where there is none.

    It is the middle of the numbers where that is what the offsets do.
    """
    if q.dtype == np.int8 or offsets is None:
        return None if q.dtype != np.int8 and bits == 8 else (0, offsets)
    middle = 2 ** (bits - 1)
    shifts = scales * np.float32(middle)
    if np.array_equal(offsets, -shifts):
        return middle, None
    return (0, offsets) if bits < 8 else (middle, once([scales, offsets], "shifted", lambda: (0, [offsets + shifts]))[1][0])
