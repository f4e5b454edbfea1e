"""AveragePool."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernels._pool import PoolDirect, geometry
from dovetail_ops_onnx.average_pool import AveragePool

__all__ = ["KERNELS"]


class AveragePoolDirect(PoolDirect):
    """One element a work item: pool.cl."""

    name = "average_pool_direct"

    def mode(self, node: TypedNode) -> dict[str, object]:
        assert isinstance(node.op, AveragePool)
        if not node.op.count_include_pad:
            return {}
        g = geometry(node)
        ends = (*(1,) * (3 - g.rank), *(size + pad for size, pad in zip(g.input, g.pads_end, strict=True)))
        return {"COUNT_PADS": True, **{f"COUNT_{axis}": end for axis, end in zip("DHW", ends, strict=True)}}


KERNELS = (AveragePoolDirect(),)
