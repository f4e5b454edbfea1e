"""MaxPool without indices: oneDNN's pooling."""

from dovetail.device import DType, TypedNode
from dovetail_cpu_onednn.kernel import LOW
from dovetail_cpu_onednn.kernels._pool import MaximumKernel
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.spatial import ConvGeometry


class Pooling(MaximumKernel):
    """The largest element of each window."""

    dtypes = LOW | {DType.INT8, DType.UINT8}

    def geometry(self, node: TypedNode) -> ConvGeometry:
        assert isinstance(node.op, MaxPool)
        return node.op.geometry(node.given(0))


KERNELS = (Pooling(),)
