"""Reorder: a primitive for the data types of oneDNN, copies in NumPy for all others."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial

import numpy as np

from dovetail.device import (
    AbstractOperator,
    Accepted,
    LayerConfig,
    Reason,
    Refusal,
    TensorType,
    TypedNode,
    ViewedReorder,
    same_bytes,
)
from dovetail_cpu_onednn.binding import Arg
from dovetail_cpu_onednn.descriptors import DATA_TYPES, describe, padded_type
from dovetail_cpu_onednn.kernel import Argument, NodePlan, OnednnKernel, PrimitiveKernel, Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel
from dovetail_cpu_onednn.reorder import in_whole_blocks, logical

__all__ = ["KERNELS"]


_VIEWED = ViewedReorder()  # one for all, by which plans for other sizes know the node again


class ReorderKernel(PrimitiveKernel):
    """From one layout to another, for the data types of oneDNN."""

    name = "reorder"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        dtype = node.given(0).dtype
        if dtype not in DATA_TYPES:
            return Refusal(Reason.DTYPE, f"{dtype}; accepted: {', '.join(sorted(d.value for d in DATA_TYPES))}")
        found = super().supports(node)
        return found if isinstance(found, Accepted) else Accepted(self.label(self.name, node))

    def takes_again(self, node: TypedNode) -> bool:
        return node.given(0).dtype in DATA_TYPES

    def as_view(self, node: TypedNode) -> AbstractOperator | None:
        # A primitive takes 0.3 us for nothing.
        return _VIEWED if same_bytes(node.given(0), node.outputs[0]) else None

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig(tuple(t.layout for t in node.inputs if t), tuple(t.layout for t in node.outputs)),)

    def types_in_memory(self, node: TypedNode) -> Mapping[str, TensorType]:
        return {node.node.outputs[0]: padded_type(in_whole_blocks(node.given(0), node.outputs[0])[1])}

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        src, dst = map(describe, in_whole_blocks(node.given(0), node.outputs[0]))
        pd = library().describe_reorder(src, dst)
        arguments = (Argument(Arg.SRC, "input", 0, src), Argument(Arg.DST, "output", 0, dst))
        return NodePlan((Stage(pd, arguments),))


class MoveKernel(PythonKernel):
    """From one order of the dimensions to another, for data types that the primitive does not take: a copy between views."""

    name = "reorder"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        return Accepted(self.name)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig(tuple(t.layout for t in node.inputs if t), tuple(t.layout for t in node.outputs)),)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        src, dst = node.given(0), node.outputs[0]
        yield partial(np.copyto, logical(array(node.node.outputs[0]), dst), logical(array(node.node.inputs[0]), src))


KERNELS: tuple[OnednnKernel, ...] = (ReorderKernel(), MoveKernel())
