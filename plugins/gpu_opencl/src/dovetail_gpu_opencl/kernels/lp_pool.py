"""LpPool."""

import math

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernels._pool import MOST_SUMMED, PoolDirect, PoolRows, geometry
from dovetail_ops_onnx.lp_pool import LpPool

__all__ = ["KERNELS"]


class LpPoolRows(PoolRows):
    """For CPUs, sums of magnitudes or squares in small windows: pool_rows.cl."""

    name = "lp_pool_rows"

    def check(self, node: TypedNode) -> Refusal | None:
        assert isinstance(node.op, LpPool)
        if node.op.p > 2 or math.prod(geometry(node).kernel) > MOST_SUMMED:
            return Refusal(Reason.ATTRIBUTE, f"p is above 2, or windows have more than {MOST_SUMMED} elements")
        return super().check(node)

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, LpPool)
        return {"POWER": node.op.p}


class LpPoolDirect(PoolDirect):
    """One element a work item: pool.cl."""

    name = "lp_pool_direct"

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, LpPool)
        return {"POWER": node.op.p}


KERNELS = (LpPoolRows(), LpPoolDirect())
