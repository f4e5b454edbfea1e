"""Inverses of matrices."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType

if TYPE_CHECKING:
    from dovetail.testing import Case

__all__ = ["Inverse"]

Array = NDArray[Any]


class Inverse(Operator):
    """The inverse of each matrix [..., N, N], or with `adjoint` its transpose. Narrow types are computed in float32."""

    domain: ClassVar[str] = "openvino"
    inputs = ("data: T",)
    outputs = ("inverse: T",)
    types = {"T": FLOATS}

    adjoint: bool = False

    def infer(self, data: TensorType) -> TensorType:
        """The type of the data."""
        if data.rank < 2 or data.dims[-1] != data.dims[-2]:
            raise ShapeError(f"input 'data' is {data}; accepted: square matrices, [..., N, N]")
        return data.with_shape(data.dims)

    def reference(self, data: Array) -> Array:
        """By LU decomposition. Raises `OperatorError` for a matrix without an inverse."""
        wide = data if data.dtype.itemsize >= 4 else data.astype(np.float32)
        try:
            found = np.linalg.inv(wide.swapaxes(-1, -2) if self.adjoint else wide)
        except np.linalg.LinAlgError as error:
            raise OperatorError(
                f"input 'data' has a matrix without an inverse: {error}; accepted: matrices of full rank"
            ) from error
        return found.astype(data.dtype, copy=False)

    @classmethod
    def cases(cls, rng: np.random.Generator) -> "Iterable[Case]":
        """Matrices whose inverses are known."""
        from dovetail_frontend_openvino.operators.cases import inverse  # here, because only tests need cases

        return inverse(rng)
