"""LpNormalization."""

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._axis import Lines
from dovetail_gpu_opencl.kernels._normalize import NormalizeLines
from dovetail_ops_onnx.lp_normalization import LpNormalization

__all__ = ["KERNELS"]


class Norm(NormalizeLines):
    """Division by the norm along one axis."""

    def __init__(self, p: int) -> None:
        self._p, self.mode = p, f"L{p}"

    def check(self, node: TypedNode) -> Refusal | None:
        assert isinstance(node.op, LpNormalization)
        return None if node.op.p == self._p else Refusal(Reason.ATTRIBUTE, f"p {node.op.p}")

    def lines(self, node: TypedNode) -> Lines:
        assert isinstance(node.op, LpNormalization)
        return Lines.of(node.outputs[0].dims, node.op.axis)


KERNELS = (Norm(1), Norm(2))
