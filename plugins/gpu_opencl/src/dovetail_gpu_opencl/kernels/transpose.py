"""Transpose."""

from collections.abc import Sequence

from dovetail.device import PLAIN, AbstractOperator, LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel, post_ops_refusal
from dovetail_ops_onnx.transpose import Transpose, ViewedTranspose

__all__ = ["KERNELS"]


class TransposeCopy(MoveKernel):
    """A copy with permuted strides, on GPUs with post-ops where it has to move."""

    has_epilogue = True

    def check(self, node: TypedNode) -> Refusal | None:
        assert isinstance(node.op, Transpose)
        if node.post_ops and node.op.unmoved(node.given(0).rank):
            return Refusal(Reason.POST_OP, "in other layouts it moves nothing")
        return post_ops_refusal(node, self.caps)

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (*_unmoved(node), LayerConfig.uniform(node, PLAIN))

    def as_view(self, node: TypedNode) -> AbstractOperator | None:
        assert isinstance(node.op, Transpose)
        return ViewedTranspose(perm=node.op.perm) if any(config.fits(node) for config in _unmoved(node)) else None

    def moves(self, node: TypedNode) -> Sequence[Move]:
        assert isinstance(node.op, Transpose)
        src, dst = node.given(0), node.outputs[0]
        steps = strides_of(src.dims)
        order = tuple(node.op.order(src.rank))
        strides = tuple(steps[axis] for axis in order)
        return [Move(node.node.inputs[0], node.node.outputs[0], dst.dims, strides, strides_of(dst.dims), order=order)]


def _unmoved(node: TypedNode) -> Sequence[LayerConfig]:
    """The layouts in which the node moves nothing."""
    assert isinstance(node.op, Transpose)
    return [LayerConfig((source,), (result,)) for source, result in node.op.unmoved(node.given(0).rank)]


KERNELS = (TransposeCopy(),)
