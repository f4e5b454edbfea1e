"""UnidirectionalSequenceRnn of TIM-VX: a simple recurrent network over a sequence, unrolled into RNNCells."""

from typing import Any

from dovetail.op import FLOATS, GraphBuilder, TensorType
from dovetail_ops_tim_vx._activations import check_activation
from dovetail_ops_tim_vx._base import RecurrentOperator
from dovetail_ops_tim_vx._sequence import RnnWay, Sequences, check_rnn_way, run_rnn


class UnidirectionalSequenceRnn(RecurrentOperator):
    """Y_t = activation(X_t W^T + b + b_recurrent + Y_(t-1) R^T), Y_(-1) = h; state is the last Y_t.

    X [batch, time, input_size], or [time, batch, input_size] when `time_major`; Y likewise with units; W [units, input_size],
    R [units, units], both biases [units], h and state [batch, units]. Biases and h left out are zero.

    Row-major shapes; TIM-VX counts dimensions the other way round. Input and output order are those of TIM-VX since it has a
    recurrent bias. TIM-VX knows no default activation; ours is tanh.
    """

    inputs = ("X: T", "W: T", "R: T", "b?: T", "b_recurrent?: T", "h?: T")
    outputs = ("state: T", "Y: T")
    types = {"T": FLOATS}

    activation: str = "tanh"
    time_major: bool = False

    def __post_init__(self) -> None:
        check_activation(self.activation)

    def infer(self, X: TensorType, *way: TensorType | None) -> tuple[TensorType, TensorType]:
        """state [batch, units] and Y. Raises `ShapeError` for inputs that do not fit."""
        x = Sequences.of("X", X, self.time_major)
        units = check_rnn_way("", way, x)
        return X.with_shape((x.batch, units)), X.with_shape(x.shape(units))

    def compose(self, g: GraphBuilder, x: str, *way: str) -> Any:
        """An RNNCell for each time step."""
        sequences = Sequences.of("X", g.type_of(x), self.time_major)
        units = check_rnn_way("", [g.type_of(name) for name in way], sequences)
        state, outputs = run_rnn(g, sequences, sequences.steps(g, x, "steps"), RnnWay(*way), units, self.activation)
        return state, sequences.joined(g, outputs, units, "output")
