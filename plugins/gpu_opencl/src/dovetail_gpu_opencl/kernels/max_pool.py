"""MaxPool."""

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import FLOATS
from dovetail_gpu_opencl.kernels._pool import PoolDirect

__all__ = ["KERNELS"]


class MaxPoolDirect(PoolDirect):
    """One element a work item: pool.cl."""

    name = "max_pool_direct"
    dtypes = FLOATS | {DType.INT8, DType.UINT8}

    def check(self, node: TypedNode) -> Refusal | None:
        return Refusal(Reason.ATTRIBUTE, "the output Indices") if len(node.outputs) > 1 else super().check(node)

    def mode(self, node: TypedNode) -> dict[str, object]:
        dtype = node.outputs[0].dtype
        lowest = "-INFINITY" if dtype.is_float else "-128" if dtype is DType.INT8 else "0"
        return {"MAXIMUM": True, "LOWEST": lowest}


KERNELS = (MaxPoolDirect(),)
