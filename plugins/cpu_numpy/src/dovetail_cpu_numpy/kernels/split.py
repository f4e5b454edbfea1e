"""Split."""

from collections.abc import Iterable

from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._movement import StridedCopy
from dovetail_cpu_numpy.launch import Array
from dovetail_ops_onnx.split import Split


class SplitCopy(StridedCopy):
    """A copy of each part that is requested."""

    def pairs(self, call: Call) -> Iterable[tuple[Array, Array]]:
        node = call.node
        assert isinstance(node.op, Split)
        src, start = call.input(0).swapaxes(node.op.axis, 0), 0
        parts = iter(call.outputs)
        # A part that nobody asks for has no type, but `infer` knows its size.
        for name, kind in zip(node.node.outputs, node.op.infer(node.given(0), node.optional(1)), strict=True):
            size = kind.dims[node.op.axis]
            if name:
                yield next(parts).swapaxes(node.op.axis, 0), src[start : start + size]
            start += size


KERNELS = (SplitCopy(),)
