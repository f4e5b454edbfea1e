"""Resize: oneDNN's resampling."""

from dovetail_cpu_onednn.kernels._resample import ResamplingKernel


class Resampling(ResamplingKernel):
    """The region, scales and sizes are read while planning."""

    parameters = (1, 2, 3)


KERNELS = (Resampling(),)
