"""RandomNormal: https://onnx.ai/onnx/operators/onnx__RandomNormal.html."""

from dovetail.op import FLOATS, DType, Operator, TensorType
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._random import generator
from dovetail_ops_onnx._shapes import check_dims
from dovetail_ops_onnx._types import Array


class RandomNormal(Operator):
    """Numbers of a normal distribution around `mean`, with the standard deviation `scale`. With a seed the same at every run."""

    inputs = ()
    outputs = ("output: T",)
    types = {"T": FLOATS}
    is_random = True

    shape: tuple[int, ...]
    dtype: DType = DType.FLOAT32
    mean: float = 0.0
    scale: float = 1.0
    seed: float | None = None

    def infer(self) -> TensorType:
        """The shape and type given."""
        return TensorType(self.dtype, check_dims(self.shape, "shape"))

    def reference(self) -> Array:
        """Drawn in float64, rounded once."""
        return rounded(self.mean + self.scale * generator(self.seed).standard_normal(self.shape), self.dtype.numpy)
