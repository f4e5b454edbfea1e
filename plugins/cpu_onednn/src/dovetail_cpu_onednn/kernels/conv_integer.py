"""ConvInteger, its sums in int32 or converted to float32: oneDNN's convolution of 8-bit numbers."""

from functools import partial

from dovetail.device import DType, Reason, TensorType, TypedNode
from dovetail_cpu_onednn.binding import INFERENCE, TAG_ANY, Alg, Arg
from dovetail_cpu_onednn.descriptors import describe, undecided
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused
from dovetail_cpu_onednn.kernels._conv import in_faster_layout, padding, preferred, weights_of
from dovetail_cpu_onednn.kernels._integer import require_constant_weights, scales_of, zero_point
from dovetail_cpu_onednn.kernels._quantized import INT8, require_int8, weights_argument
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import attach
from dovetail_ops_onnx.conv_integer import ConvInteger
from dovetail_ops_onnx.conv_integer_to_float import ConvIntegerToFloat

CHANNELS, GROUPED_CHANNELS = 0b01, 0b11
"""The masks of one number for each channel of the result: of weights without groups, and with."""


class IntegerConvolution(PrimitiveKernel):
    """u8 or s8 data with one zero point, known while planning or not, and constant s8 weights.

    oneDNN multiplies the sums by the product of both scales, rounded to float32.
    """

    name = "convolution"
    dtypes = INT8 | {DType.INT32, DType.FLOAT32}

    def _require(self, node: TypedNode) -> None:
        super()._require(node)
        # Here, because a plan must not depend on the content of constants.
        require_constant_weights(node)

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        return in_faster_layout(node, free, partial(self._plan, shared=shared))

    def _plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        require_int8()
        op, x, result = node.op, node.given(0), node.outputs[0]
        assert isinstance(op, ConvInteger | ConvIntegerToFloat)
        if x.rank > 5:
            raise Refused(Reason.SHAPE, f"{x}; accepted: one to three spatial axes")
        if node.post_ops and result.dtype is not DType.FLOAT32:
            raise Refused(Reason.POST_OP, "sums in int32 take none")
        chain = attach(node, free, shared, sums=True)
        before, zero = zero_point(node)
        masks, scales = scales_of(node, GROUPED_CHANNELS if op.group > 1 else CHANNELS)
        lib, conv = library(), op.conv()
        g, wei = conv.geometry(x, node.given(1)), weights_of(TensorType(DType.INT8, node.given(1).dims), conv.group, False)
        src, dst = (undecided(t) if free else describe(t) for t in (x, result))
        sizes = (g.strides, tuple(d - 1 for d in g.dilations), g.pads_begin, padding(g))
        attr = lib.attr(chain.appended, [*([("zero_points", int(Arg.SRC), 0)] if zero else ()), *masks])
        args = (INFERENCE, Alg.CONVOLUTION_DIRECT, src, lib.tagged(wei.dims, TAG_ANY, wei.dtype), None, dst, *sizes)
        pd = lib.describe("convolution_forward", *args, attr=attr, instead=preferred(conv, x, result))
        found = lib.taken(pd, Arg.DST, dst)
        arguments = (
            Argument(Arg.SRC, "input", 0, lib.taken(pd, Arg.SRC, src), flexible=True),
            weights_argument(node, wei, lib.arg_md(pd, Arg.WEIGHTS, wei.dims)),
            Argument(Arg.DST, "output", 0, found, flexible=True),
            *zero,
            *scales,
        )
        return NodePlan((*before, *chain.stages(pd, arguments, found)), chain.shared, (4,) if before else ())


KERNELS = (IntegerConvolution(),)
