"""The operator between two memory layouts, which the layout pass inserts and devices run."""

from typing import Any

from numpy.typing import NDArray

from dovetail.op import Operator

__all__ = ["Reorder"]


class Reorder(Operator):
    """The same values in another memory layout. Only the layout pass makes it; the types say from which layout to which."""

    domain = "dovetail"
    inputs = ("X",)
    outputs = ("Y",)

    def reference(self, X: NDArray[Any]) -> NDArray[Any]:
        """The same array: layouts do not show in dimensions."""
        return X
