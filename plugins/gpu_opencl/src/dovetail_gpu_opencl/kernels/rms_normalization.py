"""RMSNormalization."""

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._normalize import NormalizeSuffix
from dovetail_gpu_opencl.kernels.layer_normalization import NormalizeRows

__all__ = ["KERNELS"]


class RootMeanSquare(NormalizeSuffix):
    """Division by the root of the mean of squares."""

    mode = "RMS"


class RootMeanSquareRows(NormalizeRows):
    """layer_normalization.cl without the mean. On CPUs, whose vectors of a row take a quarter of the time."""

    is_rms = True

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind != "CPU":
            return Refusal(Reason.CAPABILITY, "made for CPUs")
        if node.given(1).dtype is not node.given(0).dtype:
            return Refusal(Reason.DTYPE, f"{node.given(0)} and scale {node.given(1)}; accepted: one data type")
        return super().check(node)


KERNELS = (RootMeanSquareRows(), RootMeanSquare())
