"""Operators that only change a shape, and those that move nothing in their layouts: nothing is launched."""

import dataclasses
from collections.abc import Sequence

from dovetail.device import (
    NHWC,
    PLAIN,
    AbstractOperator,
    LayerConfig,
    Reason,
    Refusal,
    Reorder,
    TypedNode,
    ViewedReorder,
    same_bytes,
)
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.source import MOVABLE

__all__ = ["View", "viewed"]

_VIEWED = ViewedReorder()


class View(CLKernel):
    """Reshape and similar operators: the output uses the input's memory."""

    name = "view"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def applies(self, node: TypedNode) -> Refusal | None:
        if not node.op.is_view:
            return Refusal(Reason.OPERATOR, node.op.key)
        # Only output 0 is the input's memory: the mask of Dropout would have to be written.
        return None if len(node.outputs) == 1 else Refusal(Reason.ATTRIBUTE, f"{len(node.outputs)} outputs")

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        source, result, rest = node.given(0), node.outputs[0], (PLAIN,) * (len(node.inputs) - 1)
        if node.op.stem.startswith("viewed_"):
            return (LayerConfig((source.layout,), (result.layout,)),)
        plain = LayerConfig.uniform(node, PLAIN)
        if min(source.rank, result.rank) < 3 or source.dims[:2] != result.dims[:2]:
            return (plain,)
        # The pixels of an image as a line, or the other way round.
        return (plain, LayerConfig((NHWC, *rest), (NHWC,)))

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        return ()


def viewed(node: TypedNode) -> TypedNode:
    """The node as a view, if it moves nothing in the layouts of its types."""
    source, result = node.inputs[0] if node.inputs else None, node.outputs[0]
    if source is None or node.post_ops or node.op.stem not in ("reorder", "transpose"):
        return node
    op: AbstractOperator | None = None
    if isinstance(node.op, Reorder):
        op = _VIEWED if same_bytes(source, result) else None
    else:
        # The classes of standard operators are there where a graph has one of them.
        from dovetail_ops_onnx.transpose import Transpose, ViewedTranspose

        assert isinstance(node.op, Transpose)
        is_unmoved = (source.layout, result.layout) in node.op.unmoved(source.rank)
        op = ViewedTranspose(perm=node.op.perm) if is_unmoved else None
    return node if op is None else dataclasses.replace(node, node=dataclasses.replace(node.node, op=op))
