"""Memory layouts: arrays lie as their layout says, and here are views of them in the order of the operator's dimensions."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import PLAIN, LayerConfig, Reason, Refusal, Reorder, TensorType, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Array, Launch, copy

__all__ = ["ReorderKernel", "laid_out", "logical"]


def logical(array: Array, tensor: TensorType) -> Array:
    """A view of an array as it lies in memory with the dimensions of `tensor`."""
    return array if tensor.layout == PLAIN else array.transpose(np.argsort(tensor.order))


def laid_out(array: Array, tensor: TensorType) -> Array:
    """A constant with the dimensions of `tensor` as it is to lie in memory: C-contiguous and read-only, copied if need be."""
    found = np.asarray(array if tensor.layout == PLAIN else array.transpose(tensor.order), order="C")
    found.flags.writeable = False
    return found


class ReorderKernel(NumpyKernel):
    """From one layout to another: a copy between transposed views."""

    name = "reorder"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return None if isinstance(node.op, Reorder) else Refusal(Reason.OPERATOR, "no change of layout")

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig(tuple(t.layout for t in node.inputs if t), tuple(t.layout for t in node.outputs)),)

    def bind(self, call: Call) -> Iterable[Launch]:
        src, (dst,) = call.node.inputs[0], call.node.outputs
        assert src is not None
        yield copy(logical(call.outputs[0], dst), logical(call.input(0), src))
