"""Slice: a copy from the sliced view."""

from collections.abc import Callable, Iterable

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array


class SliceCopy(StridedCopy):
    """Bounds, axes and steps are constants."""

    data = 1

    def refuse(self, node: TypedNode) -> Refusal | None:
        if any(given is not None and given.value is None for given in node.inputs[1:]):
            return Refusal(Reason.DYNAMIC, "bounds that are not constant")
        return None

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        return self.pairing(node)(array)

    def pairing(self, node: TypedNode) -> Callable[[Callable[[str], Array]], Iterable[tuple[Array, Array]]]:
        src, dst, view = node.node.inputs[0], node.node.outputs[0], _view(node)
        return lambda array: [(array(dst), array(src)[view])]


def _view(node: TypedNode) -> tuple[slice, ...]:
    """The slices of the input, with its axes in order."""
    first, values = node.given(0), [None if t is None else t.value for t in node.inputs[1:]]
    starts, ends, axes, steps = (None if v is None else np.atleast_1d(v).tolist() for v in (*values, None, None)[:4])
    view, count = [slice(None)] * first.rank, len(starts or ())
    for axis, start, *bounds in zip(axes or range(count), starts or (), ends or (), steps or [1] * count, strict=True):
        view[axis] = slice(max(start, -first.dims[axis]), *bounds)  # ONNX clamps a start to the first element
    return tuple(view)


KERNELS = (SliceCopy(),)
