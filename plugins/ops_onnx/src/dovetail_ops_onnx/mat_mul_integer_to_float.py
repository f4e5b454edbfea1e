"""MatMulInteger with its sums converted to float32. Only a graph pass makes this operator; it is not part of the standard."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import AbstractOperator, DType, GraphBuilder, Port, TensorType
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.mat_mul_integer import MatMulInteger
from dovetail_ops_onnx.mul import Mul

__all__ = ["MatMulIntegerToFloat"]

_SUMS = MatMulInteger()
"""One for all: this is asked several times for each node and plan."""


class MatMulIntegerToFloat(AbstractOperator):
    """MatMulInteger with its int32 sums converted to float32, each rounded once, times a_scale * b_scale if they are given.

    a_scale is one number, b_scale one or a vector of one for each column. Their product is rounded to float32 first, as the
    nodes that exporters write do.
    """

    domain = "dovetail"
    op_type = "MatMulIntegerToFloat"
    stem = "mat_mul_integer_to_float"
    magnitude = "sum_of_integers"
    inputs = (
        Port("A"),
        Port("B"),
        Port("a_zero_point", optional=True),
        Port("b_zero_point", optional=True),
        Port("a_scale", optional=True),
        Port("b_scale", optional=True),
    )
    outputs = (Port("Y"),)

    def infer(self, a: TensorType, b: TensorType, *rest: TensorType | None) -> TensorType:
        """The type of MatMulInteger in float32."""
        return _SUMS.infer(a, b, *rest[:2]).with_dtype(DType.FLOAT32)

    def compose(self, g: GraphBuilder, *inputs: str) -> str:
        """MatMulInteger and Cast, and two Mul with scales."""
        converted: str = g.node(Cast(to=DType.FLOAT32), g.node(MatMulInteger(), *inputs[:4]))
        return g.node(Mul(), converted, g.node(Mul(), *inputs[4:])) if any(inputs[4:]) else converted

    def reference(self, a: NDArray[Any], b: NDArray[Any], *rest: NDArray[Any] | None) -> NDArray[Any]:
        """The sums as float32, times the scales."""
        sums: NDArray[Any] = _SUMS.reference(a, b, *rest[:2]).astype(np.float32)
        a_scale, b_scale = (*rest, None, None, None, None)[2:4]
        return sums if a_scale is None or b_scale is None else sums * (a_scale.reshape(()) * b_scale)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Those of MatMulInteger."""
        return _SUMS.flops(inputs, outputs)
