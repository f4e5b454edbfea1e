"""UnidirectionalSequenceRnnExt of TIM-VX: UnidirectionalSequenceRnn with the tensors of ONNX's RNN."""

from typing import Any

from dovetail.op import GraphBuilder
from dovetail_ops_onnx.unsqueeze import Unsqueeze
from dovetail_ops_tim_vx._sequence import split, squeeze
from dovetail_ops_tim_vx._sequence_ext import SequenceRnnExt
from dovetail_ops_tim_vx.unidirectional_sequence_rnn import UnidirectionalSequenceRnn


class UnidirectionalSequenceRnnExt(SequenceRnnExt):
    """The forward RNN of ONNX: X [time, batch, input_size], W [1, units, input_size], R [1, units, units], B [1, 2 units] (that
    of W, then that of R), initial_h [1, batch, units] -> Y_h [1, batch, units], Y [time, 1, batch, units].

    B and initial_h left out are zero. Row-major shapes; TIM-VX counts dimensions the other way round. Its outputs have this
    order, the state first, and its shape of Y swaps the direction and the batch in the code but not in its test; ours is ONNX's.
    """

    directions = 1

    def compose(self, g: GraphBuilder, x: str, w: str, r: str, b: str, h: str) -> Any:
        """UnidirectionalSequenceRnn, between changes of shape."""
        biases = split(g, squeeze(g, b, 0), 2, 0, "biases") if b else ("", "")
        rnn = UnidirectionalSequenceRnn(activation=self.activation, time_major=True)
        state, y = g.node(
            rnn, x, squeeze(g, w, 0), squeeze(g, r, 0), *biases, squeeze(g, h, 0) if h else "", name="rnn", outputs=2
        )
        return (
            g.node(Unsqueeze(), state, g.constant([0], "int64", "axes")),
            g.node(Unsqueeze(), y, g.constant([1], "int64", "axes")),
        )
