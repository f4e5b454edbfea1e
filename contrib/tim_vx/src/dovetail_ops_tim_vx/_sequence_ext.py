"""Shape inference of the operators whose tensors are those of ONNX's RNN."""

from dovetail.op import TensorType
from dovetail_ops_tim_vx._sequence import Sequences
from dovetail_ops_tim_vx._shapes import check_rank, check_shapes

__all__ = ["infer_ext"]


def infer_ext(
    directions: int,
    X: TensorType,
    W: TensorType,
    R: TensorType,
    B: TensorType | None,
    initial_h: TensorType | None,
) -> tuple[TensorType, TensorType]:
    """Y_h [directions, batch, units] and Y [time, directions, batch, units]. Raises `ShapeError` for inputs that do not fit."""
    x = Sequences.of("X", X, time_major=True)
    _, units, _ = check_rank("W", W, ("directions", "units", "input_size"))
    state = (directions, x.batch, units)
    check_shapes(
        ("W", W, (directions, units, x.size)),
        ("R", R, (directions, units, units)),
        ("B", B, (directions, 2 * units)),
        ("initial_h", initial_h, state),
    )
    return X.with_shape(state), X.with_shape((x.time, *state))
