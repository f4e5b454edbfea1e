"""RandomUniformLike: https://onnx.ai/onnx/operators/onnx__RandomUniformLike.html."""

from dovetail.op import FLOATS, DType, Operator, TensorType
from dovetail_ops_onnx._types import BASIC, Array
from dovetail_ops_onnx.random_uniform import RandomUniform


class RandomUniformLike(Operator):
    """RandomUniform in the shape of the input, and in its type if none is given."""

    inputs = ("input: T1",)
    outputs = ("output: T2",)
    types = {"T1": BASIC, "T2": FLOATS}
    is_random = True

    dtype: DType | None = None
    high: float = 1.0
    low: float = 0.0
    seed: float | None = None

    def infer(self, x: TensorType) -> TensorType:
        """The input's shape."""
        return TensorType(self.dtype or x.dtype, x.dims)

    def reference(self, x: Array) -> Array:
        """As RandomUniform."""
        dtype = self.dtype or DType.of(x.dtype)
        return RandomUniform(shape=x.shape, dtype=dtype, low=self.low, high=self.high, seed=self.seed).reference()
