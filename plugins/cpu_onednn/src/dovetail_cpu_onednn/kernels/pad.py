"""Pad with a constant: the result filled, and a copy into its middle."""

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernel import given, value_of
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array
from dovetail_ops_onnx.pad import Pad


class Padding(StridedCopy):
    """Pads and axes are constants; negative pads cut elements off."""

    def refuse(self, node: TypedNode) -> Refusal | None:
        if not isinstance(node.op, Pad) or node.op.mode != "constant":
            return Refusal(Reason.ATTRIBUTE, "another mode than constant, or attributes of version 2")
        if any(t is not None and t.value is None for t in node.inputs[1:]):
            return Refusal(Reason.DYNAMIC, "pads that are not constant")
        return None

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        src, dst = array(node.node.inputs[0]), array(node.node.outputs[0])
        value, axes = ([*node.inputs[2:], None, None])[:2]
        pads = value_of(given(node, 1).value).tolist()
        chosen = range(src.ndim) if axes is None else [int(a) % src.ndim for a in value_of(axes.value)]
        into: list[Any] = [slice(None)] * src.ndim
        out = [*into]
        for axis, before, after in zip(chosen, pads[: len(chosen)], pads[len(chosen) :], strict=True):
            out[axis] = slice(max(-before, 0), src.shape[axis] - max(-after, 0))
            into[axis] = slice(max(before, 0), dst.shape[axis] - max(after, 0))
        fill = np.zeros((), src.dtype) if value is None else value_of(value.value).reshape(())
        yield dst, fill
        middle = dst[(..., *into)]
        if middle.size:
            yield middle, src[(..., *out)]


KERNELS = (Padding(),)
