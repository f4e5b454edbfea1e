"""ReduceSumSquare: the sum of squares over axes. https://onnx.ai/onnx/operators/onnx__ReduceSumSquare.html"""

from typing import Any

import numpy as np

from dovetail.op import DType, GraphBuilder
from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum


class ReduceSumSquare(Reduction):
    """reduced = the sum of squares of data over `axes`; see `Reduction`."""

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        return np.sum(x * x, axis=axes, keepdims=True, dtype=x.dtype)

    def compose(self, g: GraphBuilder, data: str, *axes: str) -> str:
        """A product and a sum. Floats of 16 bits are computed in float32."""
        given = g.given(data)
        wide = DType.FLOAT32 if given.dtype in (DType.FLOAT16, DType.BFLOAT16) else given.dtype
        total = ReduceSum(keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes)
        return self.widened(g, data, wide, lambda x: g.node(total, g.node(Mul(), x, x), *axes))
