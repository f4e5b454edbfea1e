"""Upsample: oneDNN's resampling."""

from dovetail_cpu_onednn.kernels._resample import ResamplingKernel


class Resampling(ResamplingKernel):
    """The scales are read while planning."""

    parameters = (1,)


KERNELS = (Resampling(),)
