"""MatMulNBits: a product with weights of 2, 4 or 8 bits in blocks, as language models have them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mat_mul_blocks import BlockMatrix, once
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import cast, ints, node, unpacked

__all__ = ["MatMulNBits"]

Array = NDArray[Any]


_INT8 = 4
"""The `accuracy_level` at which activations may be rounded to int8."""

_SMALL = 1 << 16
"""Numbers of a matrix up to which it becomes floats (256 KiB) for A in float32: their product takes less than unpacking."""


class MatMulNBits(MicrosoftOperator):
    """A [..., K] times the transpose of weights [N, K], plus a bias [N].

    The weights are bytes B [N, blocks, block_size * bits / 8], the element of the lowest index in the lowest bits, and stand for
    (q - zero point) * scale, with one scale for each block, or for the block that `g_idx` names for each of the K columns. Zero
    points are floats, or packed like the weights; without them 2 ^ (bits - 1). Weights are constants, which stay packed, except
    small ones. With `accuracy_level` 4 devices may round A to int8, with a scale for each block of a row, as ONNX Runtime does,
    or both factors to bfloat16, which errs less; else to nothing below float32.
    """

    inputs = ("A: T1", "B: uint8", "scales: T1", "zero_points?: T3", "g_idx?: int32", "bias?: T1")
    outputs = ("Y: T1",)
    types = {"T1": FLOAT_TYPES, "T3": FLOAT_TYPES | {DType.UINT8}}
    K: int
    N: int
    block_size: int
    accuracy_level: int = 0
    bits: int = 4
    weight_prepacked: int = 0

    def __post_init__(self) -> None:
        if self.bits not in (2, 4, 8) or self.block_size < 8 or self.K < 1 or self.N < 1 or self.weight_prepacked:
            given = f"bits {self.bits}, block_size {self.block_size}, K {self.K}, N {self.N}, prepacked {self.weight_prepacked}"
            raise OperatorError(
                f"attributes {given}; accepted: 2, 4 or 8 bits, blocks of 8 or more, K and N from 1, weights not prepacked"
            )

    @property
    def blocks(self) -> int:
        """Blocks in a row of weights."""
        return -(-self.K // self.block_size)

    def infer(self, A: TensorType, B: TensorType, scales: TensorType, *rest: TensorType | None) -> TensorType:
        """A with N as its last dimension. Raises `OperatorError` for weights that are not constants."""
        zeros, index, bias = rest
        if not A.rank or A.dims[-1] != self.K:
            raise ShapeError(f"input 'A' is {A}; accepted: [..., {self.K}]")
        row = -(-self.blocks * self.bits // 8)
        sizes = (
            ("B", B, self.N * self.blocks * self.block_size * self.bits // 8),
            ("scales", scales, self.N * self.blocks),
            ("zero_points", zeros, self.N * (row if zeros is not None and zeros.dtype is DType.UINT8 else self.blocks)),
            ("g_idx", index, self.K),
            ("bias", bias, self.N),
        )
        for name, t, size in sizes:
            # ONNX Runtime fills g_idx up to whole blocks.
            if t is not None and t.size != size and not (name == "g_idx" and t.size == self.blocks * self.block_size):
                raise ShapeError(f"input {name!r} is {t}; accepted: {size} elements")
            if t is not None and t.value is None and name != "bias":
                raise OperatorError(f"input {name!r} is not known while planning; accepted: a constant")
        return A.with_shape((*A.dims[:-1], self.N))

    def compose(self, g: GraphBuilder, a: str, b: str, scales: str, *rest: str) -> str:
        """MatMulBlocks in float32, and a sum. A matrix becomes floats if it is small or `g_idx` gives blocks of several sizes."""
        zeros, index, bias = (*rest, "", "", "")[:3]
        packed, factors, points, groups = (t.value if (t := g.type_of(name)) else None for name in (b, scales, zeros, index))
        assert packed is not None
        assert factors is not None
        has_floats = points is not None and points.dtype != np.uint8  # ONNX Runtime rounds no activations then
        dtype = g.given(a).dtype
        order = self._order(groups)
        sources = [x for x in (packed, factors, points, groups) if x is not None]
        key = (self.bits, self.block_size, self.K, self.N, points is None)
        is_small = dtype is DType.FLOAT32 and self.K * self.N <= _SMALL  # halves: casts would stay between products
        if order is None or is_small:
            wide = cast(g, a, dtype, DType.FLOAT32)
            _, (weights,) = once(sources, ("floats", *key), lambda: (None, [self._floats(packed, factors, points, groups)]))
            y = cast(g, node(g, MatMul(), wide, g.constant(weights, name="weights")), DType.FLOAT32, dtype)
        else:
            if groups is not None:
                a = node(g, Gather(axis=-1), a, ints(g, order.tolist()))
            matrix = BlockMatrix.once(sources, key, lambda: self._blocks(packed, factors, points, order))
            y = matrix.times(g, a, 8 if self.accuracy_level == _INT8 and not has_floats else 0)
        return node(g, Add(), y, bias) if bias else y

    def _order(self, groups: Array | None) -> Array | None:
        """The columns of A block by block; None where blocks are not all as long as they should be."""
        columns = np.arange(self.K)
        if groups is None:
            return columns
        block = groups.reshape(-1)[: self.K]
        if np.any((block < 0) | (block >= self.blocks)):
            raise OperatorError(f"input 'g_idx' has blocks outside 0 to {self.blocks - 1}")
        order = np.argsort(block, kind="stable")
        return order if np.array_equal(block[order], columns // self.block_size) else None

    def _blocks(self, b: Array, scales: Array, zeros: Array | None, order: Array) -> BlockMatrix:
        """The weights block by block, numbers of 2 bits as those of 4."""
        rows = np.ascontiguousarray(b.reshape(self.N, -1).T)  # bytes are transposed in less time than numbers
        q, parts = np.empty((self.blocks * self.block_size, self.N), np.uint8), 8 // self.bits
        for part in range(parts):
            np.right_shift(rows, np.uint8(part * self.bits), q[part::parts])
        np.bitwise_and(q, np.uint8(2**self.bits - 1), q)
        if np.any(order[1:] < order[:-1]):
            q[: self.K] = q[order]
        q[self.K :] = 0
        factor, zero = (np.ascontiguousarray(x.T) for x in self._factors(scales, zeros))
        offsets = -zero * factor
        if self.bits == 8:
            return BlockMatrix(8, self.block_size, q, factor, offsets)
        return BlockMatrix.of_nibbles(q, self.block_size, factor, offsets)

    def _factors(self, scales: Array, zeros: Array | None) -> tuple[Array, Array]:
        """Scales and zero points [N, blocks] in float32."""
        factor = scales.reshape(self.N, self.blocks).astype(np.float32)
        if zeros is None:
            return factor, np.full_like(factor, 2.0 ** (self.bits - 1))
        if zeros.dtype == np.uint8:
            return factor, unpacked(zeros.reshape(self.N, -1), self.bits)[:, : self.blocks].astype(np.float32)
        return factor, zeros.reshape(self.N, self.blocks).astype(np.float32)

    def _floats(self, b: Array, scales: Array, zeros: Array | None, groups: Array | None) -> Array:
        """[K, N] in float32."""
        factor, zero = self._factors(scales, zeros)
        block = np.arange(self.K) // self.block_size if groups is None else groups.reshape(-1)[: self.K]
        q = unpacked(b.reshape(self.N, -1), self.bits)[:, : self.K].astype(np.float32)
        return np.ascontiguousarray(((q - zero[:, block]) * factor[:, block]).T)
