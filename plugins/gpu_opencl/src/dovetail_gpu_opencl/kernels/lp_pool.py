"""LpPool."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernels._pool import PoolDirect

__all__ = ["KERNELS"]


class LpPool(PoolDirect):
    """One element a work item: pool.cl."""

    name = "lp_pool_direct"

    def mode(self, node: TypedNode) -> dict[str, object]:
        return {"POWER": node.op.p}  # type: ignore[attr-defined]  # an LpPool operator


KERNELS = (LpPool(),)
