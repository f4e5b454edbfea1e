"""GroupNormalization: oneDNN's layer normalisation and binary primitive."""

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernel import NodePlan, PrimitiveKernel
from dovetail_cpu_onednn.kernels._group_norm import group_norm
from dovetail_ops_onnx.group_normalization import GroupNormalization, GroupNormalization_18


class GroupNorm(PrimitiveKernel):
    """Scale and shift of each channel, of each group before version 21."""

    name = "group_normalization"
    overwrites = True

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op = node.op
        assert isinstance(op, GroupNormalization | GroupNormalization_18)
        return group_norm(node, op.num_groups, op.epsilon, node.given(1).dims[0])


KERNELS = (GroupNorm(),)
