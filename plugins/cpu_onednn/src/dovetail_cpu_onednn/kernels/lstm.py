"""LSTM: oneDNN's lstm."""

from dovetail.dataclass import dataclass
from dovetail.device import Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Arg, PrimitiveDesc
from dovetail_cpu_onednn.kernel import Refused
from dovetail_cpu_onednn.kernels._recurrent import Array, Recurrent, RecurrentKernel, Roles, Weights, is_default
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.lstm import LSTM

PEEPHOLE = 7


class LongShortTerm(RecurrentKernel):
    """Gates in oneDNN's order i, f, c, o; ONNX has i, o, f, c. Peepholes: i, f, o of ONNX's i, o, f."""

    name = "lstm"
    order = (0, 2, 3, 1)
    states = 2
    waits = (2, 4)

    def describe(self, op: Recurrent, direction: int, roles: Roles) -> PrimitiveDesc:
        assert isinstance(op, LSTM)
        if op.input_forget or not is_default(op):
            raise Refused(Reason.ATTRIBUTE, f"{op.describe()}; accepted: the default activations, no input_forget")
        states = (roles[Arg.SRC_1], roles[Arg.SRC_2])
        weights = (roles[Arg.WEIGHTS], roles[Arg.WEIGHTS_1], roles[Arg.WEIGHTS_2], None, roles[Arg.BIAS])
        results = (roles[Arg.DST], roles[Arg.DST_1], roles[Arg.DST_2])
        return library().describe("lstm_forward", INFERENCE, direction, roles[Arg.SRC], *states, *weights, *results, 0)

    def _weights(self, node: TypedNode, op: Recurrent, d: int) -> dict[int, Weights]:
        found = super()._weights(node, op, d)
        if node.optional(PEEPHOLE) is not None:
            dims = (1, 1, 3, node.given(2).dims[2])
            found[Arg.WEIGHTS_2] = Weights(PEEPHOLE, dims, _Peepholes(d, dims))
        return found


@dataclass(frozen=True, slots=True)
class _Peepholes:
    """[directions, 3 H] to those of one direction."""

    direction: int
    dims: tuple[int, ...]

    def __call__(self, value: Array) -> Array:
        found: Array = value[self.direction].reshape(3, -1)[[0, 2, 1]]
        return found.reshape(self.dims)


KERNELS = (LongShortTerm(),)
