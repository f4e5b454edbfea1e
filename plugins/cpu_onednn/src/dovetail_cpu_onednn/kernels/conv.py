"""Conv: oneDNN's convolution."""

from dovetail.device import TypedNode
from dovetail.ops.conv import Conv
from dovetail.spatial import ConvGeometry
from dovetail_cpu_onednn.binding import Alg, MemoryDesc
from dovetail_cpu_onednn.kernel import given
from dovetail_cpu_onednn.kernels._conv import ConvKernel, weights_of


class Convolution(ConvKernel):
    """Convolution in one to three dimensions, with groups and dilation."""

    name = "convolution"
    primitive = "convolution_forward"
    algorithm = Alg.CONVOLUTION_DIRECT

    def geometry(self, node: TypedNode) -> ConvGeometry:
        assert isinstance(node.op, Conv)
        return node.op.geometry(given(node, 0), given(node, 1))

    def weights(self, node: TypedNode) -> MemoryDesc:
        assert isinstance(node.op, Conv)
        return weights_of(given(node, 1), node.op.group, transposed=False)


KERNELS = (Convolution(),)
