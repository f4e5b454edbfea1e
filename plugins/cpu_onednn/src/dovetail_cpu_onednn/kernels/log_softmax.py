"""LogSoftmax: oneDNN's softmax."""

from dovetail_cpu_onednn.binding import Alg
from dovetail_cpu_onednn.kernels._softmax import SoftmaxKernel

KERNELS = (SoftmaxKernel(Alg.SOFTMAX_LOG),)
