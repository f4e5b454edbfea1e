"""GRU: oneDNN's gru, or lbr_gru where the reset gate comes after the product."""

import numpy as np

from dovetail.device import Reason
from dovetail_cpu_onednn.binding import INFERENCE, Arg, PrimitiveDesc
from dovetail_cpu_onednn.kernel import Refused
from dovetail_cpu_onednn.kernels._recurrent import Array, Recurrent, RecurrentKernel, Roles, is_default
from dovetail_cpu_onednn.library import library
from dovetail_ops_onnx.gru import GRU


class GatedUnit(RecurrentKernel):
    """Gates in one order: update, reset, hidden. lbr_gru has the hidden gate's two biases apart."""

    name = "gru"
    order = (0, 1, 2)
    waits = (3, 6)

    def describe(self, op: Recurrent, direction: int, roles: Roles) -> PrimitiveDesc:
        assert isinstance(op, GRU)
        if not is_default(op):
            raise Refused(Reason.ATTRIBUTE, f"{op.describe()}; accepted: the default activations")
        weights = (roles[Arg.WEIGHTS], roles[Arg.WEIGHTS_1], roles[Arg.BIAS])
        args = (INFERENCE, direction, roles[Arg.SRC], roles[Arg.SRC_1], *weights, roles[Arg.DST], roles[Arg.DST_1], 0)
        return library().describe("lbr_gru_forward" if op.linear_before_reset else "gru_forward", *args)

    def bias(self, op: Recurrent, of_x: Array, of_h: Array) -> Array:
        assert isinstance(op, GRU)
        if not op.linear_before_reset:
            return super().bias(op, of_x, of_h)
        return np.concatenate([of_x[:2] + of_h[:2], of_x[2:], of_h[2:]])

    def biases(self, op: Recurrent) -> int:
        assert isinstance(op, GRU)
        return 4 if op.linear_before_reset else 3


KERNELS = (GatedUnit(),)
