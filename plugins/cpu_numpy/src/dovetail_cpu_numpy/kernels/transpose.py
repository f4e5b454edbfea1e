"""Transpose."""

from collections.abc import Iterable

from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._movement import StridedCopy
from dovetail_cpu_numpy.launch import Array
from dovetail_ops_onnx.transpose import Transpose

_FEW, _ENOUGH = 4, 4096
"""Elements of the last axis up to which a copy for each is faster, and of all: 0.26 ms for 3 planes of 480 x 640, not 1.1."""

_MANY, _STRIP = 256, 16
"""Elements of the last axis from which on copies of 16 at once are faster, where they compete for the same lines of the cache
or the second level does not hold all: 512 x 512 floats take 0.14 ms, not 0.57."""


class TransposeCopy(StridedCopy):
    """A copy from the transposed view, or of parts of its last axis one after the other."""

    def pairs(self, call: Call) -> Iterable[tuple[Array, Array]]:
        op, src, dst = call.node.op, call.input(0), call.outputs[0]
        assert isinstance(op, Transpose)
        view = src.transpose(op.order(src.ndim))
        step = _step(view) if dst.size else 0
        if not step:
            return [(dst, view)]
        parts = [slice(first, first + step) for first in range(0, view.shape[-1], step)]
        return [(dst[..., part], view[..., part]) for part in parts]


def _step(view: Array) -> int:
    """The elements of the last axis that are copied at once; 0 for all."""
    if view.ndim < 2 or view.strides[-1] == view.itemsize:
        return 0
    if view.shape[-1] <= _FEW:
        return int(view.size >= _ENOUGH)
    competes = view.strides[-1] % 1024 == 0 or view.nbytes >= 1 << 21
    return _STRIP if view.shape[-1] >= _MANY and competes else 0


KERNELS = (TransposeCopy(),)
