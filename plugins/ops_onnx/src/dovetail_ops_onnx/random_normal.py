"""RandomNormal: https://onnx.ai/onnx/operators/onnx__RandomNormal.html."""

from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._random import RandomTensor, generator
from dovetail_ops_onnx._types import Array


class RandomNormal(RandomTensor):
    """Numbers of a normal distribution around `mean`, with the standard deviation `scale`. With a seed the same at every run."""

    mean: float = 0.0
    scale: float = 1.0

    def reference(self) -> Array:
        """Drawn in float64, rounded once."""
        return rounded(self.mean + self.scale * generator(self.seed).standard_normal(self.shape), self.dtype.numpy)
