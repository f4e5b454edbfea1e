"""Kernels that do nothing, in the place of others: to see what faster ones would give."""

from collections.abc import Iterable, Sequence

from dovetail.device import LayerConfig, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch

__all__ = ["StubKernel"]


class StubKernel(NumpyKernel):
    """Takes a node as the kernel that it stands for does, memory included, and leaves its outputs as they lie."""

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
