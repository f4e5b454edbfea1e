"""LpPool."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernels._pool import PoolDirect
from dovetail_ops_onnx.lp_pool import LpPool

__all__ = ["KERNELS"]


class LpPoolDirect(PoolDirect):
    """One element a work item: pool.cl."""

    name = "lp_pool_direct"

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, LpPool)
        return {"POWER": node.op.p}


KERNELS = (LpPoolDirect(),)
