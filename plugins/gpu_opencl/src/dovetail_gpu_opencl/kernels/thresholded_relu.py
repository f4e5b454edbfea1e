"""ThresholdedRelu."""

from dovetail_gpu_opencl.kernels._with_attributes import WithAttributes

__all__ = ["KERNELS"]

KERNELS = (WithAttributes("a <= {alpha} ? (A)0 : a", vectorizable=True),)
