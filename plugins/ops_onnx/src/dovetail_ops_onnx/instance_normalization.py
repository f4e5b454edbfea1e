"""InstanceNormalization. https://onnx.ai/onnx/operators/onnx__InstanceNormalization.html (Ulyanov et al., 2016)"""

from collections.abc import Sequence

import numpy as np

from dovetail.op import FLOATS, Operator, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._normal import channel_shape, check_channels, normalized
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array, Types


class InstanceNormalization(Operator):
    """output = scale * (input - mean) / sqrt(variance + epsilon) + B, with the statistics of each instance and channel."""

    since = 6
    inputs = ("input: T", "scale: T", "B: T")
    outputs = ("output: T",)
    types = {"T": FLOATS}
    epsilon: float = 1e-5

    def infer(self, X: TensorType, scale: TensorType, B: TensorType) -> TensorType:
        check_channels(X, X.dims[1:2], scale=scale, B=B)
        return X.with_shape(X.dims)

    def reference(self, X: Array, scale: Array, B: Array) -> Array:
        y = normalized(wide(X), tuple(range(2, X.ndim)), self.epsilon)
        shape = channel_shape(X)
        with np.errstate(all="ignore"):
            return rounded(y * wide(scale).reshape(shape) + wide(B).reshape(shape), X.dtype)

    def flops(self, inputs: Types, outputs: Sequence[TensorType]) -> int:
        return 7 * outputs[0].size
