"""Expand: a copy that broadcasts."""

from collections.abc import Callable, Iterable

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array


class ExpandCopy(StridedCopy):
    """The shape is in the type of the result."""

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        yield array(node.node.outputs[0]), array(node.node.inputs[0])


KERNELS = (ExpandCopy(),)
