"""Binarizer: 1 above a threshold, else 0. https://onnx.ai/onnx/operators/onnx_aionnxml_Binarizer.html"""

import numpy as np

from dovetail.op import TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator

__all__ = ["Binarizer"]


class Binarizer(MachineLearningOperator):
    """Y = 1 where X > threshold, else 0, in the type of X."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    threshold: float = 0.0

    def infer(self, X: TensorType) -> TensorType:
        """The type of X."""
        return X.with_shape(X.dims)

    def reference(self, X: Array) -> Array:
        """Compared in the type of X."""
        return np.asarray(np.asarray(self.threshold).astype(X.dtype) < X).astype(X.dtype)
