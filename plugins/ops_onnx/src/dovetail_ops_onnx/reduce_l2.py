"""ReduceL2: the Euclidean norm over axes. https://onnx.ai/onnx/operators/onnx__ReduceL2.html"""

from typing import Any

import numpy as np

from dovetail.op import DType, GraphBuilder
from dovetail_ops_onnx._numerics import is_float
from dovetail_ops_onnx._reduce import Reduction
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.sqrt import Sqrt


class ReduceL2(Reduction):
    """reduced = the Euclidean norm of data over `axes`; see `Reduction`.

    Integers: computed in float64 and cut off.
    """

    def reduce(self, x: Array, axes: tuple[int, ...]) -> Any:
        wide = x if is_float(x) else x.astype(np.float64)
        return np.sqrt(np.sum(wide * wide, axis=axes, keepdims=True))

    def compose(self, g: GraphBuilder, data: str, *axes: str) -> str:
        """A product, a sum and a root, in float32 or float64."""
        given = g.given(data)
        narrow = given.dtype in (DType.FLOAT16, DType.BFLOAT16, DType.FLOAT32)
        total = ReduceSum(keepdims=self.keepdims, noop_with_empty_axes=self.noop_with_empty_axes)
        wide = DType.FLOAT32 if narrow else DType.FLOAT64
        return self.widened(g, data, wide, lambda x: g.node(Sqrt(), g.node(total, g.node(Mul(), x, x), *axes)))
