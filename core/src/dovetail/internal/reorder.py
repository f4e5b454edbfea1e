"""The operator between two memory layouts, which the layout pass inserts and devices run."""

from typing import Any

from numpy.typing import NDArray

from dovetail.graph.graph import AbstractOperator, Magnitude, Port
from dovetail.graph.types import TensorType

__all__ = ["Reorder", "ViewedReorder"]


class Reorder(AbstractOperator):
    """The same values in another memory layout. Only the layout pass makes it; the types of input and output name the layouts."""

    domain = "dovetail"
    op_type = "Reorder"
    stem = "reorder"
    inputs = (Port("X"),)
    outputs = (Port("Y"),)
    propagates_nan = True
    magnitude: Magnitude = "sum"

    def infer(self, X: TensorType) -> TensorType:
        """The type of X."""
        return X.with_shape(X.shape)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        """The same array: dimensions do not depend on the layout."""
        return X


class ViewedReorder(Reorder):
    """A reorder between layouts in which the bytes are the same (`same_bytes`): a view, for devices to put in its place."""

    stem = "viewed_reorder"
    is_view = True
