"""Conv: oneDNN's convolution, several of them for depthwise ones over volumes."""

from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernels._conv import ConvKernel
from dovetail_cpu_onednn.kernels._volumes import DepthwiseVolumes


class Convolution(ConvKernel):
    """Convolution in one to three dimensions, with groups and dilation."""

    name = "convolution"
    primitive = "convolution_forward"
    algorithm = Alg.CONVOLUTION_DIRECT


KERNELS = (
    DepthwiseVolumes(),
    Convolution(),
)
