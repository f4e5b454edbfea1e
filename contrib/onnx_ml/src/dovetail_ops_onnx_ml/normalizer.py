"""Normalizer: samples divided by their norms. https://onnx.ai/onnx/operators/onnx_aionnxml_Normalizer.html"""

import numpy as np

from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator, samples, table

__all__ = ["Normalizer"]


class Normalizer(MachineLearningOperator):
    """Y = X divided by its greatest element (MAX), the sum of absolute values (L1) or the root of squares (L2) of the sample.

    Where that is 0, X stays as it is.
    """

    inputs = ("X: T",)
    outputs = ("Y: float32",)
    norm: str = "MAX"

    def __post_init__(self) -> None:
        if self.norm not in ("MAX", "L1", "L2"):
            raise OperatorError(f"attribute 'norm' is {self.norm!r}; accepted: MAX, L1, L2")

    def infer(self, X: TensorType) -> TensorType:
        """The shape of X, in float32."""
        samples(X)
        return TensorType(DType.FLOAT32, X.dims)

    def reference(self, X: Array) -> Array:
        """Computed in float64."""
        x = table(X).astype(np.float64)
        if self.norm == "MAX":
            size = np.maximum.reduce(x, axis=1, keepdims=True, initial=-np.inf)
        elif self.norm == "L1":
            size = np.add.reduce(np.abs(x), axis=1, keepdims=True)
        else:
            size = np.sqrt(np.add.reduce(x * x, axis=1, keepdims=True))
        size[size == 0] = 1
        return (x / size).astype(np.float32).reshape(X.shape)
