"""RandomUniformLike: https://onnx.ai/onnx/operators/onnx__RandomUniformLike.html."""

from dovetail.op import DType
from dovetail_ops_onnx._random import RandomLike
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx.random_uniform import RandomUniform


class RandomUniformLike(RandomLike):
    """RandomUniform in the shape of the input, and in its type if none is given."""

    high: float = 1.0
    low: float = 0.0

    def reference(self, x: Array) -> Array:
        """As RandomUniform."""
        dtype = self.dtype or DType.of(x.dtype)
        return RandomUniform(shape=x.shape, dtype=dtype, low=self.low, high=self.high, seed=self.seed).reference()
