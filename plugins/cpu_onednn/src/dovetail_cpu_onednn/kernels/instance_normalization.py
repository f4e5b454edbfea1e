"""InstanceNormalization: oneDNN's layer normalisation and binary primitive."""

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernel import NodePlan, PrimitiveKernel
from dovetail_cpu_onednn.kernels._group_norm import group_norm
from dovetail_ops_onnx.instance_normalization import InstanceNormalization


class InstanceNorm(PrimitiveKernel):
    """Every channel is a group."""

    name = "instance_normalization"
    overwrites = True

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        assert isinstance(node.op, InstanceNormalization)
        channels = node.given(0).dims[1]
        return group_norm(node, channels, node.op.epsilon, channels)


KERNELS = (InstanceNorm(),)
