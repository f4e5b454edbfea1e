"""Reorder: a copy between transposed views."""

from collections.abc import Iterable, Sequence

from dovetail.device import LayerConfig, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch, copy
from dovetail_cpu_numpy.reorder import logical

__all__ = ["KERNELS"]


class ReorderKernel(NumpyKernel):
    """From one layout to another."""

    name = "reorder"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return None

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig(tuple(t.layout for t in node.inputs if t), tuple(t.layout for t in node.outputs)),)

    def bind(self, call: Call) -> Iterable[Launch]:
        yield copy(logical(call.outputs[0], call.node.outputs[0]), logical(call.input(0), call.node.given(0)))


KERNELS = (ReorderKernel(),)
