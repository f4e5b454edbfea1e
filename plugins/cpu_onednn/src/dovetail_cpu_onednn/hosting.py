"""Runs the host kernels that an operator's class provides (`HostKernel`)."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import numpy as np

from dovetail import device
from dovetail.device import AbstractOperator, Accepted, DType, HostConfig, HostKernel, Reason, Refusal, TensorType, TypedNode
from dovetail_cpu_onednn.descriptors import BLOCKED
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, quiet

__all__ = ["HostedKernel", "hosted_kernels"]


def hosted_kernels(op: AbstractOperator) -> Sequence["HostedKernel"]:
    """The host kernels of an operator, in its order."""
    return [HostedKernel(kernel) for kernel in op.kernels if isinstance(kernel, HostKernel)] if op.kernels else ()


class HostedKernel(device.HostedKernel, PythonKernel):
    """One of the operator's host kernels. Blocked layouts come to it as they are."""

    from_operator = True
    blocked = BLOCKED

    def __init__(self, kernel: HostKernel) -> None:
        super().__init__(kernel)
        # A `bind` of their own is promised to be called once for each request.
        self.binds_quickly = type(kernel).bind is HostKernel.bind

    def __eq__(self, other: object) -> bool:
        """Whether it runs the same kernel, which plans for other sizes find so. Kernels of one class may compare as equal."""
        return isinstance(other, HostedKernel) and other._kernel is self._kernel

    def __hash__(self) -> int:
        return id(self._kernel)

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        refusal = Refusal(Reason.POST_OP, "a host kernel takes none") if node.post_ops else self.refuse(node)
        if refusal is None and any(t is not None and t.dtype is DType.STRING for t in (*node.inputs, *node.outputs)):
            refusal = Refusal(Reason.DTYPE, "string")
        return Accepted(self.name) if refusal is None else refusal

    def in_place(self, node: TypedNode) -> Sequence[str]:
        return [node.node.inputs[index] for index in self.taken_over(node)]

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        return self.binding(node)(array)

    def binding(self, node: TypedNode) -> Callable[[Callable[[str], Array]], Iterable[Call]]:
        return partial(self._calls, node, self.chosen(node))

    def _calls(self, node: TypedNode, config: HostConfig, array: Callable[[str], Array]) -> Iterator[Call]:
        inputs, outputs = ([array(name) if name else None for name in names] for names in (node.node.inputs, node.node.outputs))
        for step in self.steps(node, config, inputs, outputs):
            yield quiet(step)
        for name, tensor in zip(node.node.writes, node.outputs, strict=True):
            if (filling := _filling(array(name), tensor)) is not None:
                yield filling


def _filling(array: Array, tensor: TensorType) -> Call | None:
    """Zeros in the channels past the last, which oneDNN's primitives rely on; None where there are none."""
    block = tensor.layout.block
    if not block or not tensor.dims[1] % block:
        return None
    return partial(np.copyto, array[:, -1, ..., tensor.dims[1] % block :], np.float32(0))
