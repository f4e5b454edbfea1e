"""The operator between two floating-point types, which this device inserts where it computes in lower precision."""

from typing import Any

from numpy.typing import NDArray

from dovetail.device import DType, Operator, TensorType

__all__ = ["Convert"]


class Convert(Operator):
    """The same numbers in another floating-point type, to nearest, halves to even."""

    domain = "dovetail.opencl"
    inputs = ("X",)
    outputs = ("Y",)
    propagates_nan = True
    magnitude = "sum"
    to: DType

    def infer(self, X: TensorType) -> TensorType:
        return X.with_dtype(self.to)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        return X.astype(self.to.numpy)
