"""BidirectionalSequenceRnn of TIM-VX: two simple recurrent networks over a sequence, one from its end, unrolled into RNNCells."""

from collections.abc import Sequence
from typing import Any

from dovetail.op import FLOATS, GraphBuilder, TensorType
from dovetail_ops_tim_vx._activations import check_activation
from dovetail_ops_tim_vx._auxiliary import backward_input
from dovetail_ops_tim_vx._base import RecurrentOperator
from dovetail_ops_tim_vx._sequence import RnnWay, Sequences, check_rnn_way, concat, run_rnn
from dovetail_ops_tim_vx._shapes import check_shapes

_WAY = ("W: T", "R: T", "b?: T", "b_recurrent?: T", "h?: T")


class BidirectionalSequenceRnn(RecurrentOperator):
    """UnidirectionalSequenceRnn forwards (fw_) and backwards (bw_) over the same sequence.

    The backward direction starts at the last time step; its outputs are in time order, and bw_state is that after the first
    step. X [batch, time, input_size], or [time, batch, input_size] when `time_major`; fw_Y and bw_Y likewise with units. With
    `merge_outputs` there are three outputs: fw_Y has the features of both directions, the forward ones first. Inputs of each
    direction as in UnidirectionalSequenceRnn.

    `aux`, like X with another size, is an auxiliary input as in NNAPI: with fw_W_aux and bw_W_aux [units, aux_size] both
    directions add its product to that of X; without them the backward direction reads it in place of X.

    Row-major shapes; TIM-VX counts dimensions the other way round. Input and output order are those of TIM-VX since it has a
    recurrent bias. It gives backward outputs in order of computation (but in time order in BidirectionalSequenceRnnExt), and its
    defaults changed over time; ours are those of NNAPI, with tanh.
    """

    inputs = ("X: T", *(f"{way}_{port}" for way in ("fw", "bw") for port in _WAY), "aux?: T", "fw_W_aux?: T", "bw_W_aux?: T")
    outputs = ("fw_state: T", "bw_state: T", "fw_Y: T", "bw_Y?: T")
    types = {"T": FLOATS}

    activation: str = "tanh"
    time_major: bool = False
    merge_outputs: bool = False

    def __post_init__(self) -> None:
        check_activation(self.activation)

    def infer(self, X: TensorType, *rest: TensorType | None) -> tuple[TensorType, ...]:
        """Both states [batch, units], and the outputs. Raises `ShapeError` for inputs that do not fit."""
        x, forward, backward = self._check(X, rest)
        sizes = (forward + backward,) if self.merge_outputs else (forward, backward)
        states = tuple(X.with_shape((x.batch, units)) for units in (forward, backward))
        return (*states, *(X.with_shape(x.shape(size)) for size in sizes))

    def compose(self, g: GraphBuilder, x: str, *rest: str) -> Any:
        """An RNNCell for each time step and direction."""
        sequences, forward, backward = self._check(g.type_of(x), [g.type_of(name) for name in rest])
        fw_way, bw_way = RnnWay(*rest[:5]), RnnWay(*rest[5:10])
        aux, fw_weights, bw_weights = rest[10:]
        if fw_weights:
            # A W^T + A' W'^T is one product: of the features side by side and the weights side by side.
            x = concat(g, [x, aux], 2, "linked")
            fw_way = fw_way.with_weights(concat(g, [fw_way.W, fw_weights], 1, "fw_weights"))
            bw_way = bw_way.with_weights(concat(g, [bw_way.W, bw_weights], 1, "bw_weights"))
        steps = sequences.steps(g, x, "steps")
        bw_steps = sequences.steps(g, aux, "bw_steps") if aux and not fw_weights else steps
        fw_state, fw_steps = run_rnn(g, sequences, steps, fw_way, forward, self.activation)
        bw_state, bw_steps = run_rnn(g, sequences, bw_steps, bw_way, backward, self.activation, reverse=True)
        fw = sequences.joined(g, fw_steps, forward, "fw_output")
        bw = sequences.joined(g, bw_steps, backward, "bw_output")
        return (fw_state, bw_state, *((concat(g, [fw, bw], 2, "merged"),) if self.merge_outputs else (fw, bw)))

    def _check(self, X: TensorType | None, rest: Sequence[TensorType | None]) -> tuple[Sequences, int, int]:
        """The geometry of X and the numbers of units."""
        aux, fw_weights, bw_weights = rest[10:]
        x = Sequences.of("X", X, self.time_major)
        bw_x = backward_input(x, aux, {"fw_W_aux": fw_weights, "bw_W_aux": bw_weights})
        forward, backward = check_rnn_way("fw_", rest[:5], x), check_rnn_way("bw_", rest[5:10], bw_x)
        if aux is not None:
            size = aux.dims[2]
            check_shapes(("fw_W_aux", fw_weights, (forward, size)), ("bw_W_aux", bw_weights, (backward, size)))
        return x, forward, backward
