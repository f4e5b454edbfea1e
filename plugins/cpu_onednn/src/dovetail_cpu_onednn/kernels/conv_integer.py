"""ConvInteger: oneDNN's convolution of 8-bit numbers with int32 sums."""

from dovetail.device import DType, Reason, TensorType, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, TAG_ANY, Alg, Arg
from dovetail_cpu_onednn.descriptors import describe, undecided
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, Stage, given
from dovetail_cpu_onednn.kernels._conv import in_faster_layout, padding, preferred, weights_of
from dovetail_cpu_onednn.kernels._integer import require_constant_weights, zero_point
from dovetail_cpu_onednn.kernels._quantized import INT8, require_int8, weights_argument
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_ops_onnx.conv_integer import ConvInteger


class IntegerConvolution(PrimitiveKernel):
    """u8 or s8 data with one zero point, known while planning or not, and constant s8 weights."""

    name = "convolution"
    dtypes = INT8 | {DType.INT32}

    def _require(self, node: TypedNode) -> None:
        super()._require(node)
        # Here, because a plan must not depend on the content of constants.
        require_constant_weights(node)

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        return in_faster_layout(node, free, self._plan)

    def _plan(self, node: TypedNode, free: bool) -> NodePlan:
        require_int8()
        op, x = node.op, given(node, 0)
        assert isinstance(op, ConvInteger)
        if node.post_ops or x.rank > 5:
            raise Refused(Reason.POST_OP if node.post_ops else Reason.SHAPE, "post-ops, or more than three spatial axes")
        before, zero = zero_point(node)
        lib, conv = library(), op.conv()
        g, wei = conv.geometry(x, given(node, 1)), weights_of(TensorType(DType.INT8, given(node, 1).dims), conv.group, False)
        src, dst = (undecided(t) if free else describe(t) for t in (x, node.outputs[0]))
        sizes = (g.strides, tuple(d - 1 for d in g.dilations), g.pads_begin, padding(g))
        attr = lib.attr((), [("zero_points", int(Arg.SRC), 0)] if zero else ())
        args = (INFERENCE, Alg.CONVOLUTION_DIRECT, src, lib.tagged(wei.dims, TAG_ANY, wei.dtype), None, dst, *sizes)
        pd = lib.describe("convolution_forward", *args, attr=attr, instead=preferred(conv, x, node.outputs[0]))
        arguments = (
            Argument(Arg.SRC, "input", 0, lib.taken(pd, Arg.SRC, src), flexible=True),
            weights_argument(node, wei, lib.arg_md(pd, Arg.WEIGHTS, wei.dims)),
            Argument(Arg.DST, "output", 0, lib.taken(pd, Arg.DST, dst), flexible=True),
            *zero,
        )
        return NodePlan((*before, Stage(pd, arguments)), None, (4,) if before else ())


KERNELS = (IntegerConvolution(),)
