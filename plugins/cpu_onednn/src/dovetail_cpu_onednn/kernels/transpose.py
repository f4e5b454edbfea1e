"""Transpose: oneDNN's reorder between two orders of the dimensions."""

from collections.abc import Callable, Iterable, Sequence

from dovetail.device import PLAIN, AbstractOperator, DType, LayerConfig, Reason, TypedNode
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import number_of, plain, plain_strides
from dovetail_cpu_onednn.kernel import LOW, Argument, NodePlan, OnednnKernel, PrimitiveKernel, Refused, Stage
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_ops_onnx.transpose import Transpose, ViewedTranspose


class _Permuting(OnednnKernel):
    """Moves nothing where the channels go from the last place to the second and the result has them last in memory, or back."""

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (*_unmoved(node), LayerConfig.uniform(node, PLAIN))

    def as_view(self, node: TypedNode) -> AbstractOperator | None:
        assert isinstance(node.op, Transpose)
        return ViewedTranspose(perm=node.op.perm) if any(config.fits(node) for config in _unmoved(node)) else None


def _unmoved(node: TypedNode) -> Sequence[LayerConfig]:
    """The layouts in which the node moves nothing. None where it converts, from bfloat16 to float32 (see `precision.lower`)."""
    assert isinstance(node.op, Transpose)
    changes = node.post_ops or node.given(0).dtype is not node.outputs[0].dtype
    found = () if changes else node.op.unmoved(node.given(0).rank)
    return [LayerConfig((source,), (result,)) for source, result in found]


class Permutation(_Permuting, PrimitiveKernel):
    """The input seen with its dimensions in another order, copied to a plain output."""

    name = "reorder"
    dtypes = LOW | {DType.INT8, DType.UINT8}

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        assert isinstance(node.op, Transpose)
        dims = node.given(0).dims
        if node.post_ops or not dims:
            raise Refused(Reason.POST_OP if node.post_ops else Reason.SHAPE, "reorder takes no post-ops and no scalars")
        strides = plain_strides(dims)
        order = node.op.order(len(dims))
        src_type, dst_type = (number_of(t.dtype) for t in (node.given(0), node.outputs[0]))
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
