"""RandomUniform: https://onnx.ai/onnx/operators/onnx__RandomUniform.html."""

from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._random import RandomTensor, generator
from dovetail_ops_onnx._types import Array


class RandomUniform(RandomTensor):
    """Numbers from `low` to `high`, all equally likely. With a seed the same at every run."""

    high: float = 1.0
    low: float = 0.0

    def reference(self) -> Array:
        """Drawn in float64, rounded once."""
        drawn = generator(self.seed).random(self.shape)
        return rounded(self.low + (self.high - self.low) * drawn, self.dtype.numpy)
