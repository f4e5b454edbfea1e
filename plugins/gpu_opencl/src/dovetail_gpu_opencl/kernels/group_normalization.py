"""GroupNormalization."""

from collections.abc import Sequence

from dovetail.device import NHWC, PLAIN, LayerConfig, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernels._normalize import NormalizeChannels
from dovetail_ops_onnx.group_normalization import GroupNormalization, GroupNormalization_18

__all__ = ["KERNELS"]

_TOGETHER, _SMALL = 4, 1 << 18
"""Channels of a group from which on GPUs read them where the channels are innermost: in between are those of other groups. And
the elements up to which any number will do, because two reorders take longer."""


class Groups(NormalizeChannels):
    """Each instance and group of channels; before version 21 with one scale and bias for each group."""

    def groups(self, node: TypedNode) -> int:
        assert isinstance(node.op, GroupNormalization | GroupNormalization_18)
        return node.op.num_groups

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        plain, result = LayerConfig.uniform(node, PLAIN), node.outputs[0]
        each = result.dims[1] // self.groups(node)
        others = (operand for operand in node.operands if operand.dims != result.dims)
        apart = each < _TOGETHER and result.size > _SMALL
        if self.caps.kind == "CPU" or result.rank < 3 or apart or not isinstance(node.op, GroupNormalization):
            return (plain,)
        if not all(post_ops.lies_along(operand, result, NHWC) for operand in others):
            return (plain,)
        operands = tuple(NHWC if operand.dims == result.dims else PLAIN for operand in node.operands)
        return (plain, LayerConfig((NHWC, PLAIN, PLAIN), (NHWC,), operands))

    def places(self, node: TypedNode) -> dict[str, object]:
        channels = node.outputs[0].dims[1]
        innermost = node.outputs[0].layout != PLAIN
        return {"GROUP_CHANNELS": channels // self.groups(node), "CHANNELS": channels} if innermost else {}


KERNELS = (Groups(),)
