"""Split: a copy of each part that is requested."""

from collections.abc import Callable, Iterable

from dovetail.device import TypedNode
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_ops_onnx.split import Split


class SplitCopy(StridedCopy):
    """Parts that nobody asks for are passed over."""

    data = 1

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        assert isinstance(node.op, Split)
        axis, start = node.op.axis, 0
        src = array(node.node.inputs[0]).swapaxes(axis, 0)
        sizes = node.optional(1)
        # A part that nobody asks for has no type, but `infer` knows its size.
        for name, kind in zip(node.node.outputs, node.op.infer(node.given(0), sizes), strict=True):
            size = kind.dims[axis]
            if name:
                yield array(name).swapaxes(axis, 0), src[start : start + size]
            start += size


KERNELS = (SplitCopy(),)
