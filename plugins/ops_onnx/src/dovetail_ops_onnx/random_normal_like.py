"""RandomNormalLike: https://onnx.ai/onnx/operators/onnx__RandomNormalLike.html."""

from dovetail.op import DType
from dovetail_ops_onnx._random import RandomLike
from dovetail_ops_onnx._types import Array
from dovetail_ops_onnx.random_normal import RandomNormal


class RandomNormalLike(RandomLike):
    """RandomNormal in the shape of the input, and in its type if none is given."""

    mean: float = 0.0
    scale: float = 1.0

    def reference(self, x: Array) -> Array:
        """As RandomNormal."""
        dtype = self.dtype or DType.of(x.dtype)
        return RandomNormal(shape=x.shape, dtype=dtype, mean=self.mean, scale=self.scale, seed=self.seed).reference()
