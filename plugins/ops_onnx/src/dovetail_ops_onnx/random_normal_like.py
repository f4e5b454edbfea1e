"""RandomNormalLike: https://onnx.ai/onnx/operators/onnx__RandomNormalLike.html."""

from dovetail.op import FLOATS, DType, Operator, TensorType
from dovetail_ops_onnx._types import BASIC, Array
from dovetail_ops_onnx.random_normal import RandomNormal


class RandomNormalLike(Operator):
    """RandomNormal in the shape of the input, and in its type if none is given."""

    inputs = ("input: T1",)
    outputs = ("output: T2",)
    types = {"T1": BASIC, "T2": FLOATS}
    is_random = True

    dtype: DType | None = None
    mean: float = 0.0
    scale: float = 1.0
    seed: float | None = None

    def infer(self, x: TensorType) -> TensorType:
        """The input's shape."""
        return TensorType(self.dtype or x.dtype, x.dims)

    def reference(self, x: Array) -> Array:
        """As RandomNormal."""
        dtype = self.dtype or DType.of(x.dtype)
        return RandomNormal(shape=x.shape, dtype=dtype, mean=self.mean, scale=self.scale, seed=self.seed).reference()
