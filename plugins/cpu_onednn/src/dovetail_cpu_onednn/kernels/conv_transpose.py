"""ConvTranspose: oneDNN's deconvolution."""

from collections.abc import Sequence

from dovetail.device import TypedNode
from dovetail.ops.conv_transpose import ConvTranspose
from dovetail.spatial import ConvGeometry
from dovetail_cpu_onednn.binding import Alg, MemoryDesc
from dovetail_cpu_onednn.kernel import given
from dovetail_cpu_onednn.kernels._conv import ConvKernel, weights_of


class Deconvolution(ConvKernel):
    """Transposed convolution in one to three dimensions, with groups and dilation."""

    name = "deconvolution"
    primitive = "deconvolution_forward"
    algorithm = Alg.DECONVOLUTION_DIRECT

    def geometry(self, node: TypedNode) -> ConvGeometry:
        assert isinstance(node.op, ConvTranspose)
        return node.op.geometry(given(node, 0), given(node, 1))

    def weights(self, node: TypedNode) -> MemoryDesc:
        assert isinstance(node.op, ConvTranspose)
        return weights_of(given(node, 1), node.op.group, transposed=True)

    def padding_end(self, g: ConvGeometry) -> Sequence[int]:
        spans = zip(g.input, g.strides, g.extent, g.pads_begin, g.output, strict=True)
        return tuple((i - 1) * s + e - begin - size for i, s, e, begin, size in spans)


KERNELS = (Deconvolution(),)
