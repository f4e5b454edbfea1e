"""Where: the second alternative copied, then the first where the condition holds."""

from collections.abc import Callable, Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array, Call


class MaskedCopy(StridedCopy):
    """dst = Y; dst = X where the condition is true."""

    name = "masked_copy"

    def in_place(self, node: TypedNode) -> Sequence[str]:
        return node.node.inputs[2:3]

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        dst, y = array(node.node.outputs[0]), array(node.node.inputs[2])
        if not np.may_share_memory(dst, y):
            yield dst, y

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        condition, x, dst = (array(name) for name in (*node.node.inputs[:2], node.node.outputs[0]))
        return [*super().bind(node, array), partial(np.copyto, dst, x, where=condition)]


KERNELS = (MaskedCopy(),)
