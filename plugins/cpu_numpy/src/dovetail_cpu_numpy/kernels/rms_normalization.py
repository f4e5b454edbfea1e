"""RMSNormalization."""

from dovetail_cpu_numpy.kernels._normalized_rows import NormalizedRows


class Rows(NormalizedRows):
    """By the root of the mean square alone."""

    centred = False


KERNELS = (Rows(),)
