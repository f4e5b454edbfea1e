"""AveragePool."""

import math

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._channels import Window, WindowsInnermost
from dovetail_gpu_opencl.kernels._pool import MOST_SUMMED, PoolDirect, PoolRows, geometry, padded_ends
from dovetail_gpu_opencl.launch import Read
from dovetail_ops_onnx.average_pool import AveragePool

__all__ = ["KERNELS"]


def _large(node: TypedNode) -> Refusal | None:
    taps = math.prod(geometry(node).kernel)
    return None if taps <= MOST_SUMMED else Refusal(Reason.SHAPE, f"windows of {taps} elements; accepted: up to {MOST_SUMMED}")


class AveragePoolRows(PoolRows):
    """For CPUs, small windows: pool_rows.cl."""

    name = "average_pool_rows"

    def check(self, node: TypedNode) -> Refusal | None:
        large = _large(node)
        return super().check(node) if large is None else large

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, AveragePool)
        return {"COUNT_PADS": bool(node.op.count_include_pad)}


class AveragePoolDirect(PoolDirect):
    """One element a work item: pool.cl."""

    name = "average_pool_direct"

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, AveragePool)
        return {"COUNT_PADS": True, **padded_ends(geometry(node))} if node.op.count_include_pad else {}


class AveragePoolInnermost(WindowsInnermost, AveragePoolDirect):
    """Means of small windows."""

    name = "average_pool_innermost"

    def check(self, node: TypedNode) -> Refusal | None:
        refusal = super().check(node)
        return _large(node) if refusal is None else refusal

    def window(self, node: TypedNode) -> Window:
        mode = self.mode(node)
        mode.pop("COUNT_D", None)
        return geometry(node), {"MEAN": True, **mode}, (Read(node.node.inputs[0]),)


KERNELS = (AveragePoolInnermost(), AveragePoolRows(), AveragePoolDirect())
