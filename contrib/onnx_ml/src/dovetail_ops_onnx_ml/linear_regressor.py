"""LinearRegressor. https://onnx.ai/onnx/operators/onnx_aionnxml_LinearRegressor.html"""

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import DType, OperatorError, TensorType
from dovetail_ops_onnx_ml._base import Array, MachineLearningOperator, product, rows, samples, table
from dovetail_ops_onnx_ml._scores import check_transform, transformed

__all__ = ["LinearRegressor"]


class LinearRegressor(MachineLearningOperator):
    """Y = X coefficients' + intercepts, transformed."""

    inputs = ("X: T",)
    outputs = ("Y: float32",)
    coefficients: tuple[float, ...] = ()
    intercepts: tuple[float, ...] = ()
    targets: int = 1
    post_transform: str = "NONE"

    def __post_init__(self) -> None:
        check_transform(self.post_transform)
        if self.targets < 1 or len(self.intercepts) not in (0, self.targets):
            counts = f"{self.targets} targets and {len(self.intercepts)} intercepts"
            raise OperatorError(f"there are {counts}; accepted: an intercept for each, or none")

    def infer(self, X: TensorType) -> TensorType:
        """[samples, targets]."""
        return TensorType(DType.FLOAT32, (samples(X)[0], self.targets))

    def reference(self, X: Array) -> Array:
        """Computed in float64."""
        weights, intercepts = self._numbers
        y = product(table(X, len(weights), "the coefficients are for"), weights)
        y += intercepts
        return transformed(y, self.post_transform).astype(np.float32)

    @cached_property
    def _numbers(self) -> tuple[Array, Array]:
        weights = np.ascontiguousarray(rows(self.coefficients, self.targets, "coefficients").T)
        return weights, np.array(self.intercepts or 0.0)
