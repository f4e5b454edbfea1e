"""MatMulInteger with its sums converted to float32. Only a graph pass makes this operator; it is not part of the standard."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import AbstractOperator, DType, GraphBuilder, Port, TensorType
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger

__all__ = ["MatMulIntegerToFloat"]

_SUMS = MatMulInteger()
"""One for all: this is asked several times for each node and plan."""


class MatMulIntegerToFloat(AbstractOperator):
    """MatMulInteger with its int32 sums converted to float32, each rounded once."""

    domain = "dovetail"
    op_type = "MatMulIntegerToFloat"
    stem = "mat_mul_integer_to_float"
    inputs = (Port("A"), Port("B"), Port("a_zero_point", optional=True), Port("b_zero_point", optional=True))
    outputs = (Port("Y"),)

    def infer(self, a: TensorType, b: TensorType, *zero_points: TensorType | None) -> TensorType:
        """The type of MatMulInteger in float32."""
        return _SUMS.infer(a, b, *zero_points).with_dtype(DType.FLOAT32)

    def compose(self, g: GraphBuilder, *inputs: str) -> str:
        """MatMulInteger and Cast."""
        converted: str = g.node(Cast(to=DType.FLOAT32), g.node(MatMulInteger(), *inputs))
        return converted

    def reference(self, a: NDArray[Any], b: NDArray[Any], *zero_points: NDArray[Any] | None) -> NDArray[Any]:
        """The sums as float32."""
        return _SUMS.reference(a, b, *zero_points).astype(np.float32)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Those of MatMulInteger."""
        return _SUMS.flops(inputs, outputs)
