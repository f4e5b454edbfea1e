"""InstanceNormalization."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernels._normalize import NormalizeChannels

__all__ = ["KERNELS"]


class Instances(NormalizeChannels):
    """Each instance and channel."""

    def groups(self, node: TypedNode) -> int:
        return node.outputs[0].dims[1]


KERNELS = (Instances(),)
