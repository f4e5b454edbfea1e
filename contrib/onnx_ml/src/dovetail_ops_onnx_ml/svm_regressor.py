"""SVMRegressor. https://onnx.ai/onnx/operators/onnx_aionnxml_SVMRegressor.html"""

import numpy as np

from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator, rows, samples, table
from dovetail_ops_onnx_ml._svm import check_kernel, kernel

__all__ = ["SVMRegressor"]


class SVMRegressor(MachineLearningOperator):
    """Y = coefficients k(X, vectors) + rho; with `one_class` 1 above 0, else -1. Without vectors k(x, c) = x c."""

    inputs = ("X: T",)
    outputs = ("Y: float32",)
    coefficients: tuple[float, ...] = ()
    rho: tuple[float, ...] = (0.0,)
    support_vectors: tuple[float, ...] = ()
    n_supports: int = 0
    kernel_type: str = "LINEAR"
    kernel_params: tuple[float, ...] = ()
    one_class: bool = False
    post_transform: str = "NONE"

    def __post_init__(self) -> None:
        check_kernel(self)
        if self.post_transform != "NONE":
            raise OperatorError(
                f"attribute 'post_transform' is {self.post_transform!r}; accepted: NONE (ONNX Runtime applies none)"
            )
        if not self.rho:
            raise OperatorError("attribute 'rho' is empty; accepted: one number")

    def infer(self, X: TensorType) -> TensorType:
        """[samples, 1]."""
        return TensorType(DType.FLOAT32, (samples(X)[0], 1))

    def reference(self, X: Array) -> Array:
        """Computed in float64."""
        vectors = rows(self.support_vectors if self.n_supports else self.coefficients, max(1, self.n_supports), "support_vectors")
        x = table(X, vectors.shape[1], "the vectors have").astype(np.float64)
        kind = self.kernel_type if self.n_supports else "LINEAR"
        given = kernel(x, vectors, kind, self.kernel_params)
        if self.n_supports:
            given = given @ rows(self.coefficients, self.n_supports, "coefficients")
        y = given + self.rho[0]
        y = np.where(y > 0, 1, -1) if self.one_class else y
        return y.astype(np.float32)
