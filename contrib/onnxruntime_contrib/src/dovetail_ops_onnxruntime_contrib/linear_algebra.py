"""Inverses of matrices, distances between their rows."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, GraphBuilder, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx.pairwise_distances import PairwiseDistances
from dovetail_ops_onnx.sqrt import Sqrt
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator

__all__ = ["CDist", "Inverse"]


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


class CDist(MicrosoftOperator):
    """The distances [M, K] between the rows of A [M, N] and of B [K, N], or with `sqeuclidean` their squares."""

    inputs = ("A: T", "B: T")
    outputs = ("C: T",)
    types = {"T": frozenset({DType.FLOAT32, DType.FLOAT64})}
    metric: str = "sqeuclidean"

    def __post_init__(self) -> None:
        if self.metric not in ("euclidean", "sqeuclidean"):
            raise OperatorError(f"attribute 'metric' is {self.metric!r}; accepted: 'euclidean', 'sqeuclidean'")

    def infer(self, A: TensorType, B: TensorType) -> TensorType:
        """[M, K]."""
        if A.rank != 2 or B.rank != 2 or A.dims[1] != B.dims[1]:
            raise ShapeError(f"'A' is {A}, 'B' is {B}; accepted: [M, N], [K, N]")
        return A.with_shape((A.dims[0], B.dims[0]))

    def compose(self, g: GraphBuilder, A: str, B: str) -> str:
        """PairwiseDistances, and their roots."""
        squares = g.node(PairwiseDistances(), A, B)
        return g.node(Sqrt(), squares) if self.metric == "euclidean" else squares
