"""RNN: oneDNN's vanilla_rnn."""

from dovetail.device import Reason
from dovetail_cpu_onednn.binding import INFERENCE, Arg, PrimitiveDesc
from dovetail_cpu_onednn.kernel import Refused
from dovetail_cpu_onednn.kernels._recurrent import BACKWARD, Recurrent, RecurrentKernel, Roles
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import ELTWISE

_ACTIVATIONS = {"tanh": "tanh", "sigmoid": "logistic"}


class Vanilla(RecurrentKernel):
    """tanh or the logistic function of x W^T + h R^T + bias. relu is left out, because oneDNN's loses NaN."""

    name = "rnn"
    order = (0,)

    def describe(self, op: Recurrent, direction: int, roles: Roles) -> PrimitiveDesc:
        names = op.activations or op.defaults * 2
        name = names[direction == BACKWARD and op.direction == "bidirectional"].lower()
        if name not in _ACTIVATIONS:
            raise Refused(Reason.ATTRIBUTE, f"activation {name}; accepted: {', '.join(_ACTIVATIONS)}")
        weights = (roles[Arg.WEIGHTS], roles[Arg.WEIGHTS_1], roles[Arg.BIAS])
        args = (direction, roles[Arg.SRC], roles[Arg.SRC_1], *weights, roles[Arg.DST], roles[Arg.DST_1], 0, 0.0, 0.0)
        return library().describe("vanilla_rnn_forward", INFERENCE, ELTWISE[_ACTIVATIONS[name]], *args)


KERNELS = (Vanilla(),)
