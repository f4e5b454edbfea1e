"""GlobalAveragePool: oneDNN's pooling with a window as large as the input."""

from dovetail.device import TypedNode
from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernels._pool import PoolKernel, whole
from dovetail_ops_onnx.spatial import ConvGeometry


class Pooling(PoolKernel):
    """The mean of each channel."""

    def geometry(self, node: TypedNode) -> ConvGeometry:
        return whole(node)

    def algorithm(self, node: TypedNode, g: ConvGeometry) -> int:
        return Alg.POOLING_AVG_EXCLUDE_PADDING


KERNELS = (Pooling(),)
