"""IsInf of both signs: NumPy's isinf."""

import numpy as np

from dovetail.device import Accepted, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernels._ufunc import FLOATS, UfuncKernel
from dovetail_ops_onnx.is_inf import IsInf


class InfinityKernel(UfuncKernel):
    """dst = isinf(src), of either sign."""

    def __init__(self) -> None:
        super().__init__(np.isinf, FLOATS)

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        assert isinstance(node.op, IsInf)
        if not (node.op.detect_negative and node.op.detect_positive):
            return Refusal(Reason.ATTRIBUTE, "infinities of one sign")
        return super().supports(node)


KERNELS = (InfinityKernel(),)
