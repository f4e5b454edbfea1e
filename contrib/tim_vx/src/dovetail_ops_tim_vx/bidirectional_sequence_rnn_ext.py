"""BidirectionalSequenceRnnExt of TIM-VX: BidirectionalSequenceRnn with the tensors of ONNX's RNN."""

from typing import Any

from dovetail.op import GraphBuilder
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.unsqueeze import Unsqueeze
from dovetail_ops_tim_vx._sequence import split, squeeze
from dovetail_ops_tim_vx._sequence_ext import SequenceRnnExt
from dovetail_ops_tim_vx.bidirectional_sequence_rnn import BidirectionalSequenceRnn


class BidirectionalSequenceRnnExt(SequenceRnnExt):
    """The bidirectional RNN of ONNX: X [time, batch, input_size], W [2, units, input_size], R [2, units, units], B [2, 2 units]
    (that of W, then that of R), initial_h [2, batch, units] -> Y_h [2, batch, units], Y [time, 2, batch, units].

    The forward direction comes first. B and initial_h left out are zero. Backward outputs are in time order. Row-major
    shapes; TIM-VX counts dimensions the other way round. Its outputs have this order, the state first.
    """

    directions = 2

    def compose(self, g: GraphBuilder, x: str, w: str, r: str, b: str, h: str) -> Any:
        """BidirectionalSequenceRnn, between changes of shape."""
        weights, recurrent, states = (_halves(g, name) for name in (w, r, h))
        biases = [split(g, half, 2, 0, "biases") if half else ("", "") for half in _halves(g, b)]
        ways = [(weights[d], recurrent[d], *biases[d], states[d]) for d in (0, 1)]
        rnn = BidirectionalSequenceRnn(activation=self.activation, time_major=True)
        fw_state, bw_state, fw_y, bw_y = g.node(rnn, x, *ways[0], *ways[1], name="rnn", outputs=4)
        return _joined(g, fw_state, bw_state, 0), _joined(g, fw_y, bw_y, 1)


def _halves(g: GraphBuilder, x: str) -> tuple[str, ...]:
    """The part of an input for each direction whose first axis is the direction."""
    return tuple(squeeze(g, half, 0) for half in split(g, x, 2, 0, "directions")) if x else ("", "")


def _joined(g: GraphBuilder, forward: str, backward: str, axis: int) -> str:
    axes = g.constant([axis], "int64", "axes")
    result: str = g.node(Concat(axis=axis), *(g.node(Unsqueeze(), x, axes) for x in (forward, backward)), name="joined")
    return result
