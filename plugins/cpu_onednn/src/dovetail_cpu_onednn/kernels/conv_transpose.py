"""ConvTranspose: oneDNN's deconvolution."""

from collections.abc import Sequence

from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernels._conv import ConvKernel
from dovetail_ops_onnx.spatial import ConvGeometry


class Deconvolution(ConvKernel):
    """Transposed convolution in one to three dimensions, with groups and dilation."""

    name = "deconvolution"
    primitive = "deconvolution_forward"
    algorithm = Alg.DECONVOLUTION_DIRECT

    def padding_end(self, g: ConvGeometry) -> Sequence[int]:
        spans = zip(g.input, g.strides, g.extent, g.pads_begin, g.output, strict=True)
        return tuple((i - 1) * s + e - begin - size for i, s, e, begin, size in spans)


KERNELS = (Deconvolution(),)
