"""GroupNormalization."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernels._normalize import NormalizeChannels
from dovetail_ops_onnx.group_normalization import GroupNormalization, GroupNormalization_18

__all__ = ["KERNELS"]


class Groups(NormalizeChannels):
    """Each instance and group of channels; before version 21 with one scale and bias for each group."""

    def groups(self, node: TypedNode) -> int:
        assert isinstance(node.op, GroupNormalization | GroupNormalization_18)
        return node.op.num_groups


KERNELS = (Groups(),)
