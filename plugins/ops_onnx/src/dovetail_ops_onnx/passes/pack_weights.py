"""Pack weights: matrices and tables that are stored as integers of few bits with scales stay so, in place of floats."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.graph import AbstractOperator, DType, Graph, Node, as_constant
from dovetail.passes import drop_dead_nodes, represented_by, schedule, with_constants
from dovetail_ops_onnx.passes import is_one

if TYPE_CHECKING:
    from dovetail_ops_onnx.cast import Cast
    from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix
    from dovetail_ops_onnx.transpose import Transpose

__all__ = ["pack_weights"]

Array = NDArray[Any]
_Replaced = tuple[tuple[Node, ...], dict[str, Array]]
"""The nodes in place of one, and their constants."""

_LEAST = 1 << 16
"""Numbers of a matrix from which on it stays packed: smaller ones take little memory, and products of floats begin sooner."""

_STORED = frozenset({DType.INT8, DType.UINT8, DType.INT4, DType.UINT4, DType.UINT2})
_BYTES = frozenset({DType.INT8, DType.UINT8})


def pack_weights(graph: Graph) -> Graph:
    """The bound graph with MatMulBlocks in place of products by constants of integers with scales, as NNCF compresses weights.

    These are `Cast, Sub, Mul` in float32, with one scale for each column or block of it, `Reshape` and `Transpose` behind them,
    or DequantizeLinear in blocks. Gather of such rows takes the integers and multiplies only what it took. Other sizes and
    forms are folded to floats as before.
    """
    made: dict[str, tuple[Node, ...]] = {}
    arrays: dict[str, Array] = {}
    for node in graph.nodes:
        if node.post_ops or not is_one(node.op, "MatMul", "Gather"):
            continue
        stored = _Stored.of(graph, node.inputs[0 if is_one(node.op, "Gather") else 1])
        if stored is None or stored.codes.size < _LEAST:
            continue
        found = _product(node, stored, graph) if is_one(node.op, "MatMul") else _rows(node, stored, graph)
        if found is not None:
            made[node.name], added = found
            arrays.update(added)
    if not made:
        return graph
    nodes = tuple(part for node in graph.nodes for part in made.get(node.name, (node,)))
    return drop_dead_nodes(schedule(with_constants(graph.replace(nodes=nodes), arrays)))


@dataclass(frozen=True)
class _Stored:
    """A matrix `(codes - zeros) * scales` of three axes, of which the second may be reshaped into the first or the last one.

    `codes` are [rows, blocks, size] or, with `down`, [blocks, size, columns]; scales and zeros have one axis `size` of 1.
    `transposed` matrices are read with their axes exchanged.
    """

    codes: Array
    scales: Array
    zeros: Array | None
    down: bool
    transposed: bool
    sources: tuple[Array, ...]

    @staticmethod
    def of(graph: Graph, name: str) -> "_Stored | None":
        """None for a value of another form."""
        node, transposed = graph.producers.get(name), False
        if node is not None and is_one(node.op, "Transpose"):
            if cast("Transpose", node.op).perm not in ((1, 0), None):
                return None
            transposed, node = True, graph.producers.get(node.inputs[0])
        node = _before_cast(graph, node)
        if node is not None and is_one(node.op, "DequantizeLinear") and not node.post_ops:
            return _blockwise(graph, node, transposed)
        shape = None
        if node is not None and is_one(node.op, "Reshape"):
            shape = graph.constants.get(node.inputs[1])
            node = None if shape is None else _before_cast(graph, graph.producers.get(node.inputs[0]))
        if node is None or node.post_ops or not is_one(node.op, "Mul"):
            return None
        parts = _parts(graph, node)
        return None if parts is None else _Stored._shaped(parts, shape, transposed)

    @staticmethod
    def _shaped(parts: "_Parts", shape: Array | None, transposed: bool) -> "_Stored | None":
        """With its three axes, where the scales have one number for each row or column of a block."""
        codes, scales, zeros, sources = parts
        if shape is None:
            if codes.ndim != 2:
                return None
            down = scales.shape[0] == 1 and scales.shape[1] > 1
            axis = 0 if down else 1
            codes, scales = np.expand_dims(codes, axis), np.expand_dims(scales, axis)
            zeros = None if zeros is None else np.expand_dims(zeros, axis)
        elif codes.ndim == 3 and len(shape) == 2:
            down = scales.shape[1] == 1 and scales.shape[2] > 1
            rows, columns = codes.shape[0], codes.shape[2]
            wanted = (-1, columns) if down else (rows, -1)
            if any(given not in (size, -1) for given, size in zip(shape.tolist(), wanted, strict=True) if size >= 0):
                return None
        else:
            return None
        expected = (*codes.shape[:1], 1, *codes.shape[2:]) if down else (*codes.shape[:2], 1)
        if scales.shape != expected or codes.size == 0:
            return None
        if zeros is not None:
            if any(size not in (1, given) for size, given in zip(zeros.shape, expected, strict=True)):
                return None
            zeros = np.broadcast_to(zeros, expected)
        return _Stored(codes, scales, zeros, down, transposed, sources)

    @property
    def block_size(self) -> int:
        """Numbers that share a scale."""
        size: int = self.codes.shape[1 if self.down else 2]
        return size

    @property
    def bits(self) -> int:
        """Bits that a number takes in a packed matrix."""
        return 8 if DType.of(self.codes.dtype) in _BYTES else 4

    def matrix(self) -> "BlockMatrix":
        """As the matrix of a product, K by N, for numbers that share scales along K."""
        from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix  # here and below, because few models have such weights

        columns, (scales, zeros) = self._columns(self.codes), (self._factors(x) for x in (self.scales, self.zeros))
        blocks, size, n = columns.shape
        assert scales is not None
        if self.bits == 8:
            if columns.dtype == np.uint8:  # smaller numbers and zero points, whose products cancel less
                columns = (columns ^ np.uint8(128)).view(np.int8)
                zeros = (0 if zeros is None else zeros) - np.float32(128) + np.zeros_like(scales)
                zeros = zeros if zeros.any() else None
            size += size % 2
            q = np.zeros((blocks * size, n), np.int8)
            q[: columns.shape[0] * columns.shape[1]] = columns.reshape(-1, n)
            return BlockMatrix(8, size, q, scales, None if zeros is None else -zeros * scales)
        middle = 8 if DType.of(columns.dtype) is DType.INT4 else 0
        q = (columns.astype(np.int8) + np.int8(middle)).astype(np.uint8).reshape(-1, n)
        shift = np.float32(middle) if zeros is None else zeros + np.float32(middle)
        return BlockMatrix.of_nibbles(q, size, scales, -shift * scales if middle or zeros is not None else None)

    def _columns(self, array: Array) -> Array:
        """[blocks, size, N]"""
        return array if self.down else np.ascontiguousarray(array.reshape(len(array), -1).T).reshape(*array.shape[1:], -1)

    def _factors(self, array: Array | None) -> Array | None:
        """[blocks, N] in float32."""
        if array is None:
            return None
        return np.ascontiguousarray(array[:, 0] if self.down else array[..., 0].T, np.float32)


def _blockwise(graph: Graph, node: Node, transposed: bool) -> _Stored | None:
    """The matrix of a DequantizeLinear in blocks; those of rows and columns are left to the quantized forms."""
    op: Any = node.op
    constants = [graph.constants.get(name) for name in node.inputs if name]
    arrays = [array for array in constants if array is not None]
    if len(arrays) < len(constants) or op.block_size < 1 or arrays[0].ndim != 2 or arrays[1].dtype != np.float32:
        return None
    (rows, columns), axis, size = arrays[0].shape, op.axis % 2, op.block_size
    if (
        DType.of(arrays[0].dtype) not in _STORED
        or arrays[0].shape[axis] % size
        or op.axis not in (-2, -1, 0, 1)
        or op.output_dtype
    ):
        return None
    shape = (rows // size, size, columns) if axis == 0 else (rows, columns // size, size)
    factors = [np.expand_dims(array.astype(np.float32), axis + 1) for array in arrays[1:]]
    if arrays[0].size == 0 or any(one.shape != (*shape[: axis + 1], 1, *shape[axis + 2 :]) for one in factors):
        return None
    zeros = factors[1] if len(factors) > 1 and factors[1].any() else None
    return _Stored(arrays[0].reshape(shape), factors[0], zeros, axis == 0, transposed, tuple(arrays))


def _before_cast(graph: Graph, node: Node | None) -> Node | None:
    """The node whose float32 result a Cast to float32 reads: one of decompressed weights."""
    if node is None or not _is_cast(node.op):
        return node
    return graph.producers.get(node.inputs[0])


def _is_cast(op: AbstractOperator) -> bool:
    """Whether it is a Cast to float32."""
    return is_one(op, "Cast") and cast("Cast", op).to is DType.FLOAT32


_Parts = tuple[Array, Array, Array | None, tuple[Array, ...]]


def _parts(graph: Graph, product: Node) -> _Parts | None:
    """Codes, scales and zero points of equal rank, these in float32, from a Mul; and the constants that they are."""
    pairs = (product.inputs, product.inputs[::-1])
    name, scales = next(((a, graph.constants[b]) for a, b in pairs if b in graph.constants), ("", None))
    node, zeros = graph.producers.get(name), None
    if node is not None and is_one(node.op, "Sub"):
        zeros = graph.constants.get(node.inputs[1])
        if zeros is None and (zeros := _cast_from(graph, graph.producers.get(node.inputs[1]))) is None:
            return None
        node = graph.producers.get(node.inputs[0])
    codes = _cast_from(graph, node)
    if codes is None or scales is None or scales.dtype != np.float32 or DType.of(codes.dtype) not in _STORED:
        return None
    sources = tuple(array for array in (codes, scales, zeros) if array is not None)
    if zeros is not None:
        zeros = zeros.astype(np.float32)
        zeros = zeros.reshape((1,) * (codes.ndim - zeros.ndim) + zeros.shape)
        if not zeros.any():
            zeros = None
    ranks = {codes.ndim, scales.ndim, *(() if zeros is None else (zeros.ndim,))}
    return (codes, scales, zeros, sources) if len(ranks) == 1 else None


def _cast_from(graph: Graph, node: Node | None) -> Array | None:
    """The constant that the node converts to float32."""
    if node is None or not _is_cast(node.op) or node.post_ops:
        return None
    return graph.constants.get(node.inputs[0])


def _product(node: Node, stored: _Stored, graph: Graph) -> _Replaced | None:
    """MatMulBlocks, where scales are shared along K."""
    from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix, MatMulBlocks

    blocks, size = stored.codes.shape[:2] if stored.down else stored.codes.shape[1:]
    if stored.down is stored.transposed or size < 2 or (size % 2 and (blocks > 1 or stored.bits == 4)):
        return None
    matrix = BlockMatrix.once(stored.sources, ("stored", stored.down), stored.matrix)
    names = [graph.free_name(f"{node.name}.{name}") for name in ("q", "scales", "offsets")[: len(matrix.arrays)]]
    op = MatMulBlocks(matrix.bits, matrix.block_size)
    product = replace(node, op=op, inputs=(node.inputs[0], *names), origins=represented_by(node))
    return (product,), {name: as_constant(array) for name, array in zip(names, matrix.arrays, strict=True)}


def _rows(node: Node, stored: _Stored, graph: Graph) -> _Replaced | None:
    """Gather of the integers, scales and zero points, and DequantizeLinear of what it takes, where scales are those of rows."""
    from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
    from dovetail_ops_onnx.gather import Gather

    op, codes = node.op, stored.codes
    if not isinstance(op, Gather) or op.axis not in (0, -2) or stored.down or stored.transposed:
        return None
    kind = np.int8 if DType.of(codes.dtype) in (DType.INT8, DType.INT4) else np.uint8
    arrays = {"q": codes.reshape(len(codes), -1), "scales": stored.scales[..., 0]}
    if stored.zeros is not None:
        if not np.array_equal(stored.zeros, stored.zeros.astype(kind)):
            return None
        arrays["zero_points"] = stored.zeros[..., 0].astype(kind)
    arrays["q"] = _as_bytes(arrays["q"], kind)
    origins, taken = represented_by(node), []
    names = {name: graph.free_name(f"{node.name}.{name}") for name in arrays}
    for name, whole in names.items():
        take, result = (graph.free_name(f"{node.name}.{verb}_{name}") for verb in ("take", "taken"))
        taken.append(Node(take, Gather(axis=0), (whole, node.inputs[1]), (result,), (), origins))
    floats = DequantizeLinear(axis=-1, block_size=stored.block_size)
    last = replace(node, op=floats, inputs=tuple(one.outputs[0] for one in taken), origins=origins)
    return (*taken, last), {names[name]: as_constant(np.ascontiguousarray(array)) for name, array in arrays.items()}


def _as_bytes(codes: Array, kind: type[np.generic]) -> Array:
    """Numbers of 4 bits, which Gather does not take, as bytes; the same array for all plans of a model."""
    if codes.dtype == kind:
        return codes
    from dovetail_ops_onnx.mat_mul_blocks import once

    _, (found,) = once([codes], "bytes", lambda: (None, [codes.astype(kind)]))
    return found
