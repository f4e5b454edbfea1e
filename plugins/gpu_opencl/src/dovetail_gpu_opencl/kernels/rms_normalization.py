"""RMSNormalization."""

from dovetail_gpu_opencl.kernels._normalize import NormalizeSuffix

__all__ = ["KERNELS"]


class RootMeanSquare(NormalizeSuffix):
    """Division by the root of the mean of squares."""

    mode = "RMS"


KERNELS = (RootMeanSquare(),)
