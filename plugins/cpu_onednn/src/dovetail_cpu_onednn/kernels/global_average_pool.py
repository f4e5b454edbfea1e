"""GlobalAveragePool: oneDNN's pooling with a window as large as the input."""

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernels._pool import WholeMeanKernel, whole
from dovetail_ops_onnx.spatial import ConvGeometry


class Pooling(WholeMeanKernel):
    """The mean of each channel."""

    def geometry(self, node: TypedNode) -> ConvGeometry:
        return whole(node)


KERNELS = (Pooling(),)
