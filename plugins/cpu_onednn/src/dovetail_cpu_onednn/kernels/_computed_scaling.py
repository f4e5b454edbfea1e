"""QuantizeLinear and DequantizeLinear of 8 bits by one scale and zero point that are computed while a model runs."""

from collections.abc import Sequence

from dovetail.device import PLAIN, DType, LayerConfig, Reason, TypedNode
from dovetail_cpu_onednn.binding import F32, Arg
from dovetail_cpu_onednn.descriptors import describe, number_of, plain, tokens
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, Stage
from dovetail_cpu_onednn.kernels._integer import zero_point
from dovetail_cpu_onednn.kernels._quantized import INT8
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import BINARY, ELTWISE, Appended
from dovetail_ops_onnx.dequantize_linear import DequantizeLinear
from dovetail_ops_onnx.quantize_linear import QuantizeLinear

__all__ = ["ComputedDequantize", "ComputedQuantize"]


class _ComputedScaling(PrimitiveKernel):
    """Between float32 and 8 bits, in one layout."""

    name = "computed scale"
    dtypes = INT8 | {DType.FLOAT32}

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        rest = (PLAIN,) * (len(node.inputs) - 1)
        return [LayerConfig((layout, *rest), (layout,)) for layout in tokens(node.outputs[0].rank) if not layout.block]


class ComputedQuantize(_ComputedScaling):
    """x / scale, rounded, plus the zero point."""

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op, rank = node.op, node.given(0).rank
        assert isinstance(op, QuantizeLinear)
        zero = node.optional(2)
        if op.block_size or op.precision not in (0, DType.FLOAT32.onnx) or node.outputs[0].dtype not in INT8:
            raise Refused(Reason.ATTRIBUTE, "blocks, another precision or another type than 8 bits")
        _require_single(node, node.given(0).dtype)
        scale = plain((1,) * rank)
        extra = [Argument(Arg.SRC_1, "input", 1, scale)]
        chain: list[Appended] = [("eltwise", (ELTWISE["round"], 0.0, 0.0))]
        if zero is not None:
            own = plain((1,) * rank, number_of(zero.dtype))
            extra.append(Argument(Arg.post_op(1, Arg.SRC_1), "input", 2, own))
            chain.append(("binary", (BINARY["add"], own)))
        ends = _ends(node)
        pd = library().describe("binary", BINARY["div"], ends[0].desc, scale, ends[1].desc, attr=library().attr(chain))
        return NodePlan((Stage(pd, (*ends, *extra)),))


class ComputedDequantize(_ComputedScaling):
    """(x - zero point) * scale, by a reorder."""

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op = node.op
        assert isinstance(op, DequantizeLinear)
        if op.block_size or node.given(0).dtype not in INT8:
            raise Refused(Reason.ATTRIBUTE, "blocks, or another type than 8 bits")
        _require_single(node, node.outputs[0].dtype)
        before, zero = zero_point(node)
        masks = [("scales", int(Arg.SRC), 0), *[("zero_points", int(Arg.SRC), 0) for _ in zero]]
        ends = _ends(node)
        pd = library().describe_reorder(ends[0].desc, ends[1].desc, library().attr((), masks))
        scale = Argument(Arg.SCALES | Arg.SRC, "input", 1, plain((1,), F32))
        return NodePlan((*before, Stage(pd, (*ends, scale, *zero))), None, (4,) if before else ())


def _require_single(node: TypedNode, real: DType) -> None:
    """Raise `Refused` unless `real` numbers and the scale are float32, and there are one scale and zero point at most."""
    if node.post_ops or not node.given(0).rank or any(t is not None and t.size != 1 for t in node.inputs[1:]):
        raise Refused(Reason.ATTRIBUTE, "several scales or zero points, a scalar, or post-ops")
    if real is not DType.FLOAT32 or node.given(1).dtype is not DType.FLOAT32:
        raise Refused(Reason.DTYPE, "accepted: float32 and a scale of that type")


def _ends(node: TypedNode) -> tuple[Argument, Argument]:
    src, dst = describe(node.given(0)), describe(node.outputs[0])
    return Argument(Arg.SRC, "input", 0, src, flexible=True), Argument(Arg.DST, "output", 0, dst, flexible=True)
