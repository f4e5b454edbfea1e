"""AveragePool."""

import math

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._pool import PoolDirect, PoolRows, geometry, padded_ends
from dovetail_ops_onnx.average_pool import AveragePool

__all__ = ["KERNELS"]

_MOST = 64
"""Elements of a window of which one sum is made: more are rounded too often. The program holds each of them."""


class AveragePoolRows(PoolRows):
    """For CPUs, small windows: pool_rows.cl."""

    name = "average_pool_rows"

    def check(self, node: TypedNode) -> Refusal | None:
        taps = math.prod(geometry(node).kernel)
        return super().check(node) if taps <= _MOST else Refusal(Reason.SHAPE, f"windows of {taps} elements")

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, AveragePool)
        return {"COUNT_PADS": bool(node.op.count_include_pad)}


class AveragePoolDirect(PoolDirect):
    """One element a work item: pool.cl."""

    name = "average_pool_direct"

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, AveragePool)
        return {"COUNT_PADS": True, **padded_ends(geometry(node))} if node.op.count_include_pad else {}


KERNELS = (AveragePoolRows(), AveragePoolDirect())
