"""MatMulInteger, its sums in int32 or converted to float32: oneDNN's matmul of 8-bit numbers."""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from dovetail.device import DType, Reason, TypedNode
from dovetail_cpu_onednn.binding import TAG_ANY, Arg
from dovetail_cpu_onednn.descriptors import number_of, plain
from dovetail_cpu_onednn.kernel import Argument, NodePlan, PrimitiveKernel, Refused, Stage
from dovetail_cpu_onednn.kernels._integer import require_constant_weights, scales_of, weights_zero_point, zero_point
from dovetail_cpu_onednn.kernels._matmul import collapse
from dovetail_cpu_onednn.kernels._quantized import INT8, require_int8, weights_argument
from dovetail_cpu_onednn.kernels._row_parts import appended_for, argument_for, has_tiles, row_parts
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import NODE_PLANS, alike, cached_plan
from dovetail_cpu_onednn.post_ops import attach

COLUMNS = 1 << 1
"""The mask of one number for each column."""


class IntegerMatMul(PrimitiveKernel):
    """u8 or s8 rows with one zero point, known while planning or not, by a constant s8 matrix.

    oneDNN multiplies the sums by the product of both scales, rounded to float32.
    """

    name = "matmul"
    dtypes = INT8 | {DType.INT32, DType.FLOAT32}
    has_zero: ClassVar[bool] = False
    """Whether the weights have a zero point."""

    def _require(self, node: TypedNode) -> None:
        super()._require(node)
        # Here, because a plan must not depend on the content of constants.
        require_constant_weights(node, self.has_zero)

    def with_spare_rows(self, node: TypedNode) -> TypedNode | None:
        if library().planned_threads == 1 or not has_tiles():
            return None
        from dovetail_cpu_onednn.spare_rows import with_spare_rows  # here, because most programs have one size

        return with_spare_rows(node)

    def final(self, node: TypedNode, shared: bool, found: NodePlan | None = None) -> NodePlan:
        # A model's first plan has the fastest primitives; those for further sizes on one thread none that take long to make.
        # Several threads would wait for each other in every part.
        if found is not None or library().planned_threads != 1 or not has_tiles():
            return super().final(node, shared, found)
        question = (type(self), "in parts", alike(node), shared)
        return NODE_PLANS.get(question, lambda: self._plan(node, shared, row_parts(_rows(node), overlap=not shared)))

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        return self._plan(node, shared, [(0, _rows(node))])

    def _plan(self, node: TypedNode, shared: bool, parts: Sequence[tuple[int, int]]) -> NodePlan:
        """By a primitive for each of these parts of the rows: where it begins, and how many rows it has."""
        require_int8()
        lib, result = library(), node.outputs[0]
        if node.post_ops and result.dtype is not DType.FLOAT32:
            raise Refused(Reason.POST_OP, "sums in int32 take none")
        tensor = node.given(1)
        if tensor.rank != 2 or node.given(0).rank < 2:
            raise Refused(Reason.SHAPE, f"{node.given(0)} by {tensor}; accepted: matrices by one matrix")
        rows, wei_dims, dims = collapse(node.given(0).dims, tensor.dims)
        chain = attach(node, False, shared, dims=None if dims == result.dims else dims, sums=True)
        before, zero = zero_point(node)
        masks, scales = scales_of(node, COLUMNS)
        own = weights_zero_point(node) if self.has_zero else ()
        zeros = [("zero_points", int(arg), 0) for arg, used in ((Arg.SRC, zero), (Arg.WEIGHTS, own)) if used]
        wei = plain(wei_dims, number_of(DType.INT8))
        stages: list[Stage] = []
        for start, count in parts:
            src = plain((count, rows[1]), number_of(node.given(0).dtype))
            dst = plain((count, dims[1]), number_of(result.dtype))
            attr = lib.attr(appended_for(chain.appended, count), [*zeros, *masks])
            pd = lib.describe("matmul", src, lib.tagged(wei_dims, TAG_ANY, wei.dtype), None, dst, attr=attr)
            arguments = [
                Argument(Arg.SRC, "input", 0, src),
                weights_argument(node, wei, lib.arg_md(pd, Arg.WEIGHTS, wei_dims)),
                Argument(Arg.DST, "output", 0, dst),
                *zero,
                *own,
                *scales,
            ]
            found = chain.stages(pd, arguments, dst)
            stages += [replace(s, arguments=tuple([argument_for(a, start, count) for a in s.arguments])) for s in found]
        return NodePlan((*before, *stages), chain.shared, (4,) if before else ())


def _rows(node: TypedNode) -> int:
    return math.prod(node.given(0).dims[:-1])


class ShiftedIntegerMatMul(IntegerMatMul):
    """The same with one zero point of the matrix, as dynamic quantization to uint8 gives it.

    A kernel of its own: oneDNN adds up the rows for it, which a matrix without one should not pay for.
    """

    name = "matmul with zero point"
    has_zero = True


KERNELS = (IntegerMatMul(), ShiftedIntegerMatMul())
