"""MatMulNBits: a product with weights of 2, 4 or 8 bits in blocks, as language models have them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import given, node

__all__ = ["MatMulNBits"]

Array = NDArray[Any]


class MatMulNBits(MicrosoftOperator):
    """A [..., K] times the transpose of weights [N, K], plus a bias [N].

    The weights are bytes B [N, blocks, block_size * bits / 8], the element of the lowest index in the lowest bits, and stand for
    (q - zero point) * scale, with one scale for each block, or for the block that `g_idx` names for each of the K columns. Zero
    points are floats, or packed like the weights; without them 2 ^ (bits - 1). Weights are constants: they are unpacked while
    planning.
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
        """MatMul with the weights as floats, and a sum."""
        zeros, index, bias = (*rest, "", "", "")[:3]
        values = [t.value if (t := g.type_of(name)) is not None else None for name in (b, scales, zeros, index)]
        weights = self._weights(*values).astype(given(g, a).dtype.numpy)
        y = node(g, MatMul(), a, g.constant(weights, name="weights"))
        return node(g, Add(), y, bias) if bias else y

    def _weights(self, b: Array | None, scales: Array | None, zeros: Array | None, index: Array | None) -> Array:
        """[K, N] in float32."""
        assert b is not None
        assert scales is not None
        q = self._unpacked(b.reshape(self.N, -1))[:, : self.blocks * self.block_size].astype(np.float32)
        factor = scales.reshape(self.N, self.blocks).astype(np.float32)
        if zeros is None:
            zero = np.full_like(factor, 2.0 ** (self.bits - 1))
        elif zeros.dtype == np.uint8:
            zero = self._unpacked(zeros.reshape(self.N, -1))[:, : self.blocks].astype(np.float32)
        else:
            zero = zeros.reshape(self.N, self.blocks).astype(np.float32)
        block = np.arange(self.K) // self.block_size if index is None else index.reshape(-1)[: self.K]
        if np.any((block < 0) | (block >= self.blocks)):
            raise OperatorError(f"input 'g_idx' has blocks outside 0 to {self.blocks - 1}")
        return np.ascontiguousarray(((q[:, : self.K] - zero[:, block]) * factor[:, block]).T)

    def _unpacked(self, rows: Array) -> Array:
        shifts = np.arange(0, 8, self.bits, dtype=np.uint8)
        parts = (rows[..., None] >> shifts) & np.uint8(2**self.bits - 1)
        return parts.reshape(len(rows), -1)
