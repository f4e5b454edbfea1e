"""Slice."""

from collections.abc import Iterable

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._movement import StridedCopy
from dovetail_cpu_numpy.launch import Array


class SliceCopy(StridedCopy):
    """A copy from the sliced view; bounds, axes and steps are constants."""

    def refuse(self, node: TypedNode) -> Refusal | None:
        if any(given is not None and given.value is None for given in node.inputs[1:]):
            return Refusal(Reason.DYNAMIC, "bounds that are not constant")
        return None

    def pairs(self, call: Call) -> Iterable[tuple[Array, Array]]:
        src = call.input(0)
        given = [None if t is None else t.value for t in call.node.inputs[1:]]
        starts, ends, axes, steps = (None if v is None else np.atleast_1d(v).tolist() for v in (*given, None, None)[:4])
        view = [slice(None)] * src.ndim
        count = len(starts or ())
        for axis, start, *bounds in zip(axes or range(count), starts or (), ends or (), steps or [1] * count, strict=True):
            view[axis] = slice(max(start, -src.shape[axis]), *bounds)  # ONNX clamps a start to the first element
        yield call.outputs[0], src[tuple(view)]


KERNELS = (SliceCopy(),)
