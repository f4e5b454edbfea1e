"""Transpose: oneDNN's reorder between two orders of the dimensions."""

from collections.abc import Callable, Iterable, Sequence

from dovetail.device import BYXF, PLAIN, AbstractOperator, DType, LayerConfig, Reason, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import number_of, plain, plain_strides
from dovetail_cpu_onednn.kernel import LOW, Argument, NodePlan, OnednnKernel, PrimitiveKernel, Refused, Stage, given
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_ops_onnx.transpose import Transpose


class ViewedTranspose(Transpose):
    """A transpose whose layouts hold the same bytes: a view, for which no kernels are listed."""

    stem = "viewed_transpose"
    is_view = True


class _Permuting(OnednnKernel):
    """Moves nothing where the channels go from the last place to the second and the result has them last in memory, or back."""

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        moved = _unmoved(node)
        return (LayerConfig.uniform(node, PLAIN),) if moved is None else (moved, LayerConfig.uniform(node, PLAIN))

    def as_view(self, node: TypedNode) -> AbstractOperator | None:
        moved = _unmoved(node)
        if moved is None or not moved.fits(node):
            return None
        assert isinstance(node.op, Transpose)
        return ViewedTranspose(perm=node.op.perm)


def _unmoved(node: TypedNode) -> LayerConfig | None:
    """The layouts in which the node moves nothing."""
    rank = given(node, 0).rank
    if node.post_ops or not 3 <= rank <= 5:
        return None
    assert isinstance(node.op, Transpose)
    order = tuple(node.op.order(rank))
    if order == (0, rank - 1, *range(1, rank - 1)):
        return LayerConfig((PLAIN,), (BYXF,))
    return LayerConfig((BYXF,), (PLAIN,)) if order == (0, *range(2, rank), 1) else None


class Permutation(_Permuting, PrimitiveKernel):
    """The input seen with its dimensions in another order, copied to a plain output."""

    name = "reorder"
    dtypes = LOW | {DType.INT8, DType.UINT8}

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        assert isinstance(node.op, Transpose)
        dims = given(node, 0).dims
        if node.post_ops or not dims:
            raise Refused(Reason.POST_OP if node.post_ops else Reason.SHAPE, "reorder takes no post-ops and no scalars")
        strides = plain_strides(dims)
        order = node.op.order(len(dims))
        src_type, dst_type = (number_of(t.dtype) for t in (given(node, 0), node.outputs[0]))
        src = library().strided([dims[axis] for axis in order], [strides[axis] for axis in order], src_type)
        dst = plain(node.outputs[0].dims, dst_type)
        pd = library().describe_reorder(src, dst)
        if not pd.implementation.startswith("jit"):
            raise Refused(Reason.OPERATOR, f"oneDNN has only {pd.implementation} for this order")
        return NodePlan((Stage(pd, (Argument(Arg.SRC, "input", 0, src), Argument(Arg.DST, "output", 0, dst))),))


class TransposeCopy(_Permuting, StridedCopy):
    """The same by NumPy, for other data types and for orders that oneDNN has no fast implementation for."""

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        assert isinstance(node.op, Transpose)
        src = array(node.node.inputs[0])
        yield array(node.node.outputs[0]), src.transpose(node.op.order(src.ndim))


KERNELS = (Permutation(), TransposeCopy())
