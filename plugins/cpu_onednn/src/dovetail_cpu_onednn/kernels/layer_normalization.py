"""LayerNormalization over the last axis: oneDNN's layer normalisation."""

from dovetail.device import DType, Reason, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, Arg, Flag
from dovetail_cpu_onednn.descriptors import describe, plain
from dovetail_cpu_onednn.kernel import LOW, Argument, NodePlan, PrimitiveKernel, Refused
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import attach
from dovetail_ops_onnx.layer_normalization import LayerNormalization


class LayerNorm(PrimitiveKernel):
    """Rows of the last axis, with a scale and a shift for each column."""

    name = "layer_normalization"
    dtypes = LOW
    overwrites = True

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op, dims = node.op, node.given(0).dims
        assert isinstance(op, LayerNormalization)
        if op.axis % len(dims) != len(dims) - 1 or len(dims) < 2:
            raise Refused(Reason.ATTRIBUTE, f"axis {op.axis} of {node.given(0)}; accepted: the last of two or more")
        parameters = [(Arg.SCALE, 1), (Arg.SHIFT, 2)][: len(node.inputs) - 1]
        present = [(arg, index) for arg, index in parameters if node.inputs[index] is not None]
        if any(node.given(index).dims != dims[-1:] for _, index in present):
            raise Refused(Reason.SHAPE, f"Scale and B; accepted: [{dims[-1]}]")
        if any(node.given(index).dtype is not DType.FLOAT32 for _, index in present):
            raise Refused(Reason.DTYPE, "Scale and B; accepted: float32")
        flags = Flag.USE_SCALE | (Flag.USE_SHIFT if len(present) > 1 else 0)
        src, dst, vector = describe(node.given(0)), describe(node.outputs[0]), plain(dims[-1:])
        chain = attach(node, False, False)
        args = (INFERENCE, src, dst, None, op.epsilon, flags)
        pd = library().describe("layer_normalization_forward", *args, attr=chain.attr)
        arguments = [Argument(Arg.SRC, "input", 0, src), Argument(Arg.DST, "output", 0, dst)]
        arguments += [Argument(arg, "input", index, vector) for arg, index in present]
        return NodePlan(chain.stages(pd, arguments, dst), chain.shared)


KERNELS = (LayerNorm(),)
