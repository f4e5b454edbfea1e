"""LpNormalization."""

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._axis import Lines
from dovetail_gpu_opencl.kernels._normalize import NormalizeLines

__all__ = ["KERNELS"]


class Norm(NormalizeLines):
    """Division by the norm along one axis."""

    def __init__(self, p: int) -> None:
        self._p, self.mode = p, f"L{p}"

    def check(self, node: TypedNode) -> Refusal | None:
        p = node.op.p  # type: ignore[attr-defined]  # an LpNormalization operator
        return None if p == self._p else Refusal(Reason.ATTRIBUTE, f"p {p}")

    def lines(self, node: TypedNode) -> Lines:
        axis: int = node.op.axis  # type: ignore[attr-defined]  # an LpNormalization operator
        return Lines.of(node.outputs[0].dims, axis)


KERNELS = (Norm(1), Norm(2))
