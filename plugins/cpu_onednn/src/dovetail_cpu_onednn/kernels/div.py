"""Div of floats whose dividend is broadcast, as in 1 / x, and of float64: NumPy's divide. The primitive binary has others."""

import numpy as np

from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernels._ufunc import FLOATS, UfuncKernel


class BroadcastDividend(UfuncKernel):
    """A quotient that the binary primitive, which broadcasts its second operand only, does not take."""

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        first, result = node.inputs[0], node.outputs[0]
        if result.dtype is DType.FLOAT32 and first is not None and first.dims == result.dims:
            return Refusal(Reason.SHAPE, "a dividend as large as the result; accepted: one that is broadcast")
        return super().supports(node)


KERNELS = (BroadcastDividend(np.divide, FLOATS),)
