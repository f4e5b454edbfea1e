"""The base of the operators whose tensors are those of ONNX's RNN."""

from typing import ClassVar

from dovetail.op import FLOATS, TensorType
from dovetail_ops_tim_vx._activations import check_activation
from dovetail_ops_tim_vx._base import RecurrentOperator
from dovetail_ops_tim_vx._sequence import Sequences
from dovetail_ops_tim_vx._shapes import check_rank, check_shapes

__all__ = ["SequenceRnnExt"]


class SequenceRnnExt(RecurrentOperator):
    """An RNN with so many directions: X [time, batch, input_size] -> Y_h [directions, batch, units] and Y [time, *Y_h].

    W is [directions, units, input_size], R [directions, units, units], B [directions, 2 units], initial_h as Y_h.
    """

    inputs = ("X: T", "W: T", "R: T", "B?: T", "initial_h?: T")
    outputs = ("Y_h: T", "Y: T")
    types = {"T": FLOATS}
    directions: ClassVar[int]

    activation: str = "tanh"

    def __post_init__(self) -> None:
        check_activation(self.activation)

    def infer(
        self, X: TensorType, W: TensorType, R: TensorType, B: TensorType | None = None, initial_h: TensorType | None = None
    ) -> tuple[TensorType, TensorType]:
        """Y_h and Y. Raises `ShapeError` for inputs that do not fit."""
        x = Sequences.of("X", X, time_major=True)
        _, units, _ = check_rank("W", W, ("directions", "units", "input_size"))
        state = (self.directions, x.batch, units)
        check_shapes(
            ("W", W, (self.directions, units, x.size)),
            ("R", R, (self.directions, units, units)),
            ("B", B, (self.directions, 2 * units)),
            ("initial_h", initial_h, state),
        )
        return X.with_shape(state), X.with_shape((x.time, *state))
