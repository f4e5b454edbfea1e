"""MaxPool."""

from dovetail.device import DType, TypedNode
from dovetail_gpu_opencl.kernel import FLOATS
from dovetail_gpu_opencl.kernels._pool import PoolDirect

__all__ = ["KERNELS"]


class MaxPoolDirect(PoolDirect):
    """One element a work item: pool.cl."""

    name = "max_pool_direct"
    dtypes = FLOATS | {DType.INT8, DType.UINT8, DType.INT64}

    def mode(self, node: TypedNode) -> dict[str, object]:
        dtype = node.outputs[0].dtype
        lowest = "-INFINITY" if dtype.is_float else "-128" if dtype is DType.INT8 else "0"
        columns = bool(node.op.storage_order)  # type: ignore[attr-defined]  # a MaxPool operator
        return {"MAXIMUM": True, "LOWEST": lowest, "INDICES": len(node.outputs) > 1, "COLUMNS": columns}


KERNELS = (MaxPoolDirect(),)
