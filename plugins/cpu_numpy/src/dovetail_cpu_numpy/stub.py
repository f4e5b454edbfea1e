"""Kernels that do nothing, to measure how much a faster kernel could save."""

from collections.abc import Iterable, Sequence

from dovetail.device import LayerConfig, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch

__all__ = ["StubKernel"]


class StubKernel(NumpyKernel):
    """Replaces another kernel: accepts the same nodes, takes the same memory, and does not write the outputs."""

    name = "stub"

    def __init__(self, kernel: NumpyKernel) -> None:
        self._kernel = kernel

    def refuse(self, node: TypedNode) -> Refusal | None:
        return self._kernel.refuse(node)

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return self._kernel.configurations(node)

    def in_place(self, node: TypedNode) -> Sequence[int]:
        return self._kernel.in_place(node)

    def bind(self, call: Call) -> Iterable[Launch]:
        return ()

    def launches(self, call: Call) -> Iterable[Launch]:
        return ()
