"""Scaler: offsets and factors. https://onnx.ai/onnx/operators/onnx_aionnxml_Scaler.html"""

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import DType, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator, column, samples

__all__ = ["Scaler"]


class Scaler(MachineLearningOperator):
    """Y = (X - offset) scale in float32: one of each for all features, or for each."""

    inputs = ("X: T",)
    outputs = ("Y: float32",)
    offset: tuple[float, ...] = (0.0,)
    scale: tuple[float, ...] = (1.0,)

    def infer(self, X: TensorType) -> TensorType:
        """The shape of X."""
        for name in ("offset", "scale"):
            column(getattr(self, name), samples(X)[1], name)
        return TensorType(DType.FLOAT32, X.dims)

    def reference(self, X: Array) -> Array:
        """Computed in float64."""
        offset, scale = self._numbers
        scaled = np.subtract(X, offset, dtype=np.float64)
        scaled *= scale
        return scaled.astype(np.float32)

    @cached_property
    def _numbers(self) -> tuple[Array, Array]:
        return np.array(self.offset), np.array(self.scale)
