"""The operator that gives a value a second name."""

from typing import Any

import numpy as np

from dovetail.graph.graph import AbstractOperator, Magnitude, Port
from dovetail.graph.types import TensorType

__all__ = ["Copy"]


class Copy(AbstractOperator):
    """The input as it is. Passes insert it where a graph output would otherwise be an input or have two names."""

    domain = "dovetail"
    op_type = "Copy"
    stem = "copy"
    inputs = (Port("X"),)
    outputs = (Port("Y"),)
    propagates_nan = True
    magnitude: Magnitude = "sum"
    is_view = True
    in_place = True

    def infer(self, X: TensorType) -> TensorType:
        """The type of X."""
        return X if X.value is None else X.with_shape(X.shape)

    def reference(self, X: Any) -> Any:
        """A view of an array; sequences (lists) and absent optionals as they are."""
        return X.view() if isinstance(X, np.ndarray) else X

    def flops(self, inputs: Any, outputs: Any) -> int:
        """None: data is only moved."""
        return 0
