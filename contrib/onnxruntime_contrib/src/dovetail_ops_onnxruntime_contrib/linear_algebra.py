"""Inverses of matrices."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, OperatorError, ShapeError, TensorType
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator

__all__ = ["Inverse"]


class Inverse(MicrosoftOperator):
    """The inverse of each matrix in the last two axes. Float16 is computed in float32."""

    inputs = ("X: T",)
    outputs = ("Y: T",)
    types = {"T": frozenset({DType.FLOAT16, DType.FLOAT32, DType.FLOAT64})}

    def infer(self, X: TensorType) -> TensorType:
        """The type of X."""
        if X.rank < 2 or X.dims[-1] != X.dims[-2]:
            raise ShapeError(f"input 'X' is {X}; accepted: square matrices")
        return X.with_shape(X.dims)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        """numpy.linalg.inv. Raises `OperatorError` for a matrix without an inverse."""
        try:
            found = np.linalg.inv(X.astype(np.float32) if X.dtype == np.float16 else X)
        except np.linalg.LinAlgError as error:
            raise OperatorError(f"input 'X' has a matrix without an inverse: {error}") from error
        return found.astype(X.dtype, copy=False)
