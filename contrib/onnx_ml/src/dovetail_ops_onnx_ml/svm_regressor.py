"""SVMRegressor. https://onnx.ai/onnx/operators/onnx_aionnxml_SVMRegressor.html"""

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator, product, rows, samples, table
from dovetail_ops_onnx_ml._svm import Kernel, check_kernel

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
        kernel, coefficients = self._machine
        y = kernel(table(X, kernel.vectors.shape[1], "the vectors have").astype(np.float64))
        if coefficients is not None:
            y = product(y, coefficients)
        y += self.rho[0]
        y = np.where(y > 0, 1, -1) if self.one_class else y
        return y.astype(np.float32)

    @cached_property
    def _machine(self) -> tuple[Kernel, Array | None]:
        """The kernel and the coefficients of the vectors, which a linear one without vectors has in their place."""
        if not self.n_supports:
            return Kernel(rows(self.coefficients, 1, "support_vectors"), "LINEAR", ()), None
        vectors = rows(self.support_vectors, self.n_supports, "support_vectors")
        return Kernel(vectors, self.kernel_type, self.kernel_params), rows(self.coefficients, self.n_supports, "coefficients")
