"""BitShift: https://onnx.ai/onnx/operators/onnx__BitShift.html."""

import numpy as np

from dovetail.op import INTEGERS, Operator, OperatorError, TensorType
from dovetail_ops_onnx._elementwise import same_type
from dovetail_ops_onnx._types import Array


class BitShift(Operator):
    """The bits of X moved by Y places to the LEFT or RIGHT; the sign of signed integers moves in from the left.

    Where ONNX leaves it open: a shift by at least the width gives 0 (-1 for negative numbers to the right), a negative one is
    taken for such a shift.
    """

    since = 11
    inputs = ("X: T", "Y: T")
    outputs = ("Z: T",)
    types = {"T": INTEGERS}
    in_place = True

    direction: str

    def __post_init__(self) -> None:
        if self.direction not in ("LEFT", "RIGHT"):
            raise OperatorError(f"attribute 'direction' is {self.direction!r}; accepted: LEFT, RIGHT")

    def infer(self, x: TensorType, y: TensorType) -> TensorType:
        """The type of X in the shape that both broadcast to."""
        return same_type(x, y)

    def reference(self, x: Array, y: Array) -> Array:
        """x << y or x >> y, which NumPy defines for all numbers of places as this operator does."""
        return np.asarray(np.left_shift(x, y) if self.direction == "LEFT" else np.right_shift(x, y))
