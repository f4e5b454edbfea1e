"""QLinearConv."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.blocks import in_block
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._integer_conv import IntegerConvKernel
from dovetail_cpu_numpy.kernels._quantized import requantized
from dovetail_cpu_numpy.launch import Launch, Spec

_X_SCALE, _W_SCALE, _Y_SCALE, _Y_ZERO, _BIAS = 1, 4, 6, 7, 8


class RoundedSums(IntegerConvKernel):
    """The exact sums, with the scales and the rounding in float64."""

    weights, zeros = 3, (2, 5)

    def refuse(self, node: TypedNode) -> Refusal | None:
        if any(node.given(index).value is None for index in (_X_SCALE, _W_SCALE, _Y_SCALE, _Y_ZERO)):
            return Refusal(Reason.DYNAMIC, "scales that are not constant")
        return super().refuse(node)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        return (*super().scratch(node), ((in_block(node.outputs[0].size),), np.dtype(np.float64)))

    def bind(self, call: Call) -> Iterable[Launch]:
        total, launches = self.sums(call)
        yield from launches
        column = (-1, *(1,) * (total.ndim - 2))
        x_scale, w_scale, y_scale = (call.input(index).astype(np.float64) for index in (_X_SCALE, _W_SCALE, _Y_SCALE))
        units = (x_scale.reshape(()) * w_scale).reshape(column), y_scale.reshape(())
        bias = call.optional(_BIAS)
        added = None if bias is None else bias.reshape(column)
        yield from requantized(total, added, units, call.input(_Y_ZERO), call.outputs[0], call.scratch[1])


KERNELS = (RoundedSums(),)
