"""The operator between two floating-point types, which devices insert where they compute in lower precision."""

from typing import Any

from numpy.typing import NDArray

from dovetail.graph.dtype import DType
from dovetail.graph.types import TensorType
from dovetail.operators.operator import Operator

__all__ = ["Convert"]


class Convert(Operator):
    """The same numbers in another floating-point type, to nearest, halves to even."""

    domain = "dovetail"
    inputs = ("X",)
    outputs = ("Y",)
    propagates_nan = True
    magnitude = "sum"
    to: DType

    def infer(self, X: TensorType) -> TensorType:
        """The type of X with the data type `to`."""
        return X.with_dtype(self.to)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        """The numbers in the type `to`."""
        return X.astype(self.to.numpy)
