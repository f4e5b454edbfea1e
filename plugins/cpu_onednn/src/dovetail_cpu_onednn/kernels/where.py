"""Where: bits of the alternatives selected by masks; of few elements the second copied, then the first where it is true."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, quiet

FEW = 1 << 13
"""Elements up to which two copies take less time, 0.7 us for eight of them."""


class BitSelect(PythonKernel):
    """dst = X ^ ((X ^ Y) & mask), with ones in the mask where the condition is false.

    Copies of elements one by one take 0.9 ms for 196,608 of them if the condition is random, and this 0.08, whatever it is.
    """

    name = "bit_select"
    binds_quickly = True

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        result = node.outputs[0]
        if node.post_ops:
            return Refusal(Reason.POST_OP, "it takes none")
        if result.dtype is DType.STRING or result.dtype.itemsize > 8:
            return Refusal(Reason.DTYPE, f"{result.dtype}; accepted: up to 8 bytes")
        return Refusal(Reason.SHAPE, f"{result}, few elements") if result.size <= FEW else Accepted(self.name)

    def in_place(self, node: TypedNode) -> Sequence[str]:
        return node.node.inputs[2:3]

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        return self.binding(node)(array)

    def binding(self, node: TypedNode) -> Callable[[Callable[[str], Array]], Iterable[Call]]:
        bits = np.dtype(f"i{node.outputs[0].dtype.itemsize}")
        return partial(self._calls, node, np.empty(node.given(0).dims, bits))

    def _calls(self, node: TypedNode, mask: Array, array: Callable[[str], Array]) -> Iterable[Call]:
        bits = mask.dtype
        condition, *data = (array(name) for name in (*node.node.inputs, node.node.outputs[0]))
        x, y, dst = (a.view(bits) for a in data)
        return [
            quiet(partial(np.subtract, condition.view(np.int8), 1, mask, dtype=bits)),
            quiet(partial(np.bitwise_xor, x, y, dst)),
            quiet(partial(np.bitwise_and, dst, mask, dst)),
            quiet(partial(np.bitwise_xor, dst, x, dst)),
        ]


class MaskedCopy(StridedCopy):
    """dst = Y; dst = X where the condition is true."""

    name = "masked_copy"

    def in_place(self, node: TypedNode) -> Sequence[str]:
        return node.node.inputs[2:3]

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        dst, y = array(node.node.outputs[0]), array(node.node.inputs[2])
        if not np.may_share_memory(dst, y):
            yield dst, y

    def binding(self, node: TypedNode) -> Callable[[Callable[[str], Array]], Iterable[Call]]:
        copies = super().binding(node)

        def bind(array: Callable[[str], Array]) -> Iterable[Call]:
            condition, x, dst = (array(name) for name in (*node.node.inputs[:2], node.node.outputs[0]))
            return [*copies(array), partial(np.copyto, dst, x, where=condition)]

        return bind


KERNELS = (BitSelect(), MaskedCopy())
