"""GroupNormalization."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernels._normalize import NormalizeChannels

__all__ = ["KERNELS"]


class Groups(NormalizeChannels):
    """Each instance and group of channels; before version 21 with one scale and bias for each group."""

    def groups(self, node: TypedNode) -> int:
        found: int = node.op.num_groups  # type: ignore[attr-defined]  # a GroupNormalization operator
        return found


KERNELS = (Groups(),)
