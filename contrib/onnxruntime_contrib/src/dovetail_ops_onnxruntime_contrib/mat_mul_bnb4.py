"""MatMulBnb4: a product with weights of 4 bits as bitsandbytes stores them."""

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.mat_mul import MatMul
from dovetail_ops_onnx.mat_mul_blocks import once
from dovetail_ops_onnxruntime_contrib._base import FLOAT_TYPES, MicrosoftOperator
from dovetail_ops_onnxruntime_contrib._nodes import cast, node, unpacked

__all__ = ["MatMulBnb4"]

_FP4 = (0, 0.00520833333, 0.66666667, 1, 0.33333333, 0.5, 0.16666667, 0.25)
_NF4 = (
    *(-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453),
    *(-0.28444138169288635, -0.18477343022823334, -0.09105003625154495, 0.0),
    *(0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224),
    *(0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0),
)
_NUMBERS = np.array([[*_FP4, *(-number for number in _FP4)], _NF4], np.float32)
"""The numbers that 4 bits name, by `quant_type`. https://arxiv.org/abs/2305.14314, and bitsandbytes for FP4."""


class MatMulBnb4(MicrosoftOperator):
    """A [..., K] times the transpose of weights [N, K], or with `transB` 0 A [..., N] times the weights.

    The weights, row by row, are numbers of 4 bits, two to a byte, the first in the high bits: FP4 (`quant_type` 0) or NF4 (1)
    times the `absmax` of their block of `block_size`. They are constants, which become floats while planning.
    """

    inputs = ("A: T1", "B: uint8", "absmax: T1")
    outputs = ("Y: T1",)
    types = {"T1": FLOAT_TYPES}
    K: int
    N: int
    block_size: int
    quant_type: int
    training_mode: bool = False
    transB: bool = True

    def __post_init__(self) -> None:
        if self.quant_type not in (0, 1) or min(self.block_size, self.K, self.N) < 1:
            found = f"'quant_type' is {self.quant_type}, 'block_size' {self.block_size}, 'K' {self.K}, 'N' {self.N}"
            raise OperatorError(f"{found}; accepted: 0 or 1, and 1 or more")

    def infer(self, A: TensorType, B: TensorType, absmax: TensorType) -> TensorType:
        """A with N, or K, as its last dimension. Raises `OperatorError` for weights that are not constants."""
        size, width, wide = self.N * self.K, *((self.K, self.N) if self.transB else (self.N, self.K))
        if not A.rank or A.dims[-1] != width or B.size != -(-size // 2) or absmax.size != -(-size // self.block_size):
            accepted = f"[..., {width}], {-(-size // 2)} bytes, {-(-size // self.block_size)} numbers"
            raise ShapeError(f"'A' is {A}, 'B' {B}, 'absmax' {absmax}; accepted: {accepted}")
        if B.value is None or absmax.value is None:
            raise OperatorError("'B' or 'absmax' is not known while planning; accepted: constants")
        return A.with_shape((*A.dims[:-1], wide))

    def compose(self, g: GraphBuilder, a: str, b: str, absmax: str) -> str:
        """MatMul in float32."""
        packed, scales, dtype = g.given(b).value, g.given(absmax).value, g.given(a).dtype
        assert packed is not None
        assert scales is not None
        key = ("MatMulBnb4", self.quant_type, self.block_size, self.N, self.K, self.transB)
        _, (weights,) = once([packed, scales], key, lambda: (None, [self._floats(packed, scales)]))
        y = node(g, MatMul(), cast(g, a, dtype, DType.FLOAT32), g.constant(weights, name="weights"))
        return cast(g, y, DType.FLOAT32, dtype)

    def _floats(self, packed: NDArray[np.uint8], scales: NDArray[np.floating]) -> NDArray[np.float32]:
        """The factor of A."""
        size = self.N * self.K
        codes = unpacked(packed.reshape(-1, 1), 4)[:, ::-1].reshape(-1)[:size]
        numbers = np.resize(_NUMBERS[self.quant_type][codes], (scales.size, self.block_size))
        numbers *= scales.reshape(-1, 1).astype(np.float32)
        weights = numbers.reshape(-1)[:size].reshape(self.N, self.K)
        return weights.T if self.transB else weights
