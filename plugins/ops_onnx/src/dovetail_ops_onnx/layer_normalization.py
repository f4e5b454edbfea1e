"""LayerNormalization. https://onnx.ai/onnx/operators/onnx__LayerNormalization.html (Ba, Kiros and Hinton, 2016)"""

import math
from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, DType, Operator, OperatorError, TensorType
from dovetail_ops_onnx._axes import require_broadcast
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import check_axis
from dovetail_ops_onnx._types import Array, Types


class LayerNormalization(Operator):
    """Y = (X - Mean) * InvStdDev * Scale + B, with the statistics of all axes from `axis` on.

    Mean and InvStdDev have the type `stash_type` and size 1 along the normalized axes. Computed in float32, in float64 for
    float64 inputs, whatever the narrower `stash_type`; the result is rounded once.
    """

    since = 17
    inputs = ("X: T", "Scale: T", "B?: T")
    outputs = ("Y: T", "Mean?: U", "InvStdDev?: U")
    propagates_nan = True
    types = {"T": FLOATS, "U": frozenset({DType.FLOAT32, DType.BFLOAT16})}
    axis: int = -1
    epsilon: float = 1e-5
    stash_type: DType = DType.FLOAT32

    def __post_init__(self) -> None:
        if self.stash_type not in self.types["U"]:
            raise OperatorError(f"attribute 'stash_type' is {self.stash_type}; accepted: float32 (1), bfloat16 (16)")

    def infer(self, X: TensorType, Scale: TensorType, B: TensorType | None = None) -> tuple[TensorType, TensorType, TensorType]:
        axis = check_axis(self.axis, X.rank)
        require_broadcast("Scale", Scale.dims, X.dims)
        if B is not None:
            require_broadcast("B", B.dims, X.dims)
        statistic = TensorType(self.stash_type, (*X.dims[:axis], *(1,) * (X.rank - axis)))
        return X.with_shape(X.dims), statistic, statistic

    def reference(self, X: Array, Scale: Array, B: Array | None = None) -> tuple[Array, Array, Array]:
        x = wide(X)
        axis = check_axis(self.axis, X.ndim)
        axes = tuple(range(axis, X.ndim))
        with np.errstate(all="ignore"):
            count = np.asarray(math.prod(X.shape[axis:]), x.dtype)
            mean = np.sum(x, axis=axes, keepdims=True) / count
            centred = x - mean
            inverse = 1 / np.sqrt(np.sum(centred * centred, axis=axes, keepdims=True) / count + self.epsilon)
            y = centred * inverse * wide(Scale)
            if B is not None:
                y = y + wide(B)
        return rounded(y, X.dtype), rounded(mean, self.stash_type.numpy), rounded(inverse, self.stash_type.numpy)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 8 * outputs[0].size
