"""RNN."""

from dovetail_gpu_opencl.kernels._recurrent import Recurrence

__all__ = ["KERNELS"]

KERNELS = (Recurrence(),)
