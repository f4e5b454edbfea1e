"""MatMulInteger, its sums in int32 or converted to float32: oneDNN's matmul of 8-bit numbers."""

import numpy as np

from dovetail.device import DType, Reason, TypedNode
from dovetail_cpu_onednn.binding import S32, TAG_ANY, Arg
from dovetail_cpu_onednn.chain import attach
from dovetail_cpu_onednn.int8 import INT8, SHIFT, require_int8, value_argument
from dovetail_cpu_onednn.kernel import Argument, PrimitiveKernel, Recipe, Refused, Stage, given
from dovetail_cpu_onednn.kernels._matmul import collapse
from dovetail_cpu_onednn.layouts import number_of, plain
from dovetail_cpu_onednn.library import library


class IntegerMatMul(PrimitiveKernel):
    """u8 or s8 rows with one zero point, known while planning or not, by a constant s8 matrix."""

    name = "matmul"
    dtypes = INT8 | {DType.INT32, DType.FLOAT32}

    def recipe(self, node: TypedNode, free: bool, shared: bool) -> Recipe:
        require_int8()
        lib, result = library(), node.outputs[0]
        if node.post_ops and result.dtype is not DType.FLOAT32:
            raise Refused(Reason.POST_OP, "sums in int32 take none")
        content = _weights(node)
        rows, wei_dims, dims = collapse(given(node, 0).dims, content.shape)
        chain = attach(node, False, shared, dims=None if dims == result.dims else dims, sums=True)
        before, zero = _zero_point(node)
        src, dst = plain(rows, number_of(given(node, 0).dtype)), plain(dims, number_of(result.dtype))
        wei = plain(wei_dims, number_of(DType.INT8))
        attr = lib.attr(chain.appended, [("zero_points", int(Arg.SRC), 0)] if zero else ())
        pd = lib.describe("matmul", src, lib.tagged(wei_dims, TAG_ANY, wei.dtype), None, dst, attr=attr)
        arguments = [
            Argument(Arg.SRC, "input", 0, src),
            Argument(Arg.WEIGHTS, "content", 1, wei, lib.arg_md(pd, Arg.WEIGHTS, wei_dims), content=lambda: content),
            Argument(Arg.DST, "output", 0, dst),
            *zero,
        ]
        stages = chain.stages(pd, arguments, dst)
        return Recipe((*before, *stages), chain.shared, (4,) if before else ())


def _weights(node: TypedNode) -> np.ndarray[tuple[int, ...], np.dtype[np.int8]]:
    """The constant matrix in int8. Raises `Refused`."""
    tensor, zero = given(node, 1), node.inputs[3] if len(node.inputs) > 3 else None
    if tensor.value is None or tensor.rank != 2 or given(node, 0).rank < 2 or (zero is not None and zero.value is None):
        raise Refused(Reason.SHAPE, f"{given(node, 0)} by {tensor}; accepted: matrices by one constant matrix")
    shift = SHIFT if tensor.dtype is DType.UINT8 else 0
    zeros = np.zeros(1, np.int32) if zero is None or zero.value is None else zero.value.astype(np.int32)
    if (zeros != shift).any():
        raise Refused(Reason.ATTRIBUTE, "a matrix with a zero point")
    return (tensor.value.astype(np.int16) - shift).astype(np.int8)


def _zero_point(node: TypedNode) -> tuple[tuple[Stage, ...], tuple[Argument, ...]]:
    """A stage that brings the zero point of the rows into int32, where it is computed, and the argument that it becomes."""
    tensor, arg = node.inputs[2] if len(node.inputs) > 2 else None, Arg.ZERO_POINTS | Arg.SRC
    if tensor is None:
        return (), ()
    if tensor.size != 1:
        raise Refused(Reason.SHAPE, f"zero points {tensor}; accepted: one")
    if tensor.value is not None:
        return (), (value_argument(arg, tensor.value.reshape(1).astype(np.int32)),)
    one, wide = plain((1,), number_of(tensor.dtype)), plain((1,), S32)
    moves = (Argument(Arg.SRC, "input", 2, one), Argument(Arg.DST, "scratch", 0, wide))
    return (Stage(library().describe_reorder(one, wide), moves),), (Argument(arg, "scratch", 0, wide),)


KERNELS = (IntegerMatMul(),)
