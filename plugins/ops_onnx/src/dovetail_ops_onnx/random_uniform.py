"""RandomUniform: https://onnx.ai/onnx/operators/onnx__RandomUniform.html."""

from dovetail.op import FLOATS, DType, Operator, TensorType
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._random import generator
from dovetail_ops_onnx._shapes import check_dims
from dovetail_ops_onnx._types import Array


class RandomUniform(Operator):
    """Numbers from `low` to `high`, all equally likely. With a seed the same at every run."""

    inputs = ()
    outputs = ("output: T",)
    types = {"T": FLOATS}
    is_random = True

    shape: tuple[int, ...]
    dtype: DType = DType.FLOAT32
    high: float = 1.0
    low: float = 0.0
    seed: float | None = None

    def infer(self) -> TensorType:
        """The shape and type given."""
        return TensorType(self.dtype, check_dims(self.shape, "shape"))

    def reference(self) -> Array:
        """Drawn in float64, rounded once."""
        drawn = generator(self.seed).random(self.shape)
        return rounded(self.low + (self.high - self.low) * drawn, self.dtype.numpy)
