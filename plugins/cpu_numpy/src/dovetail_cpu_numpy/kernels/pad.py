"""Pad: a copy into the middle of the result, and the borders: a constant, or copies of what is there already."""

from collections.abc import Iterable

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._movement import StridedCopy
from dovetail_cpu_numpy.launch import Array
from dovetail_ops_onnx.pad import Pad


class Padding(StridedCopy):
    """Pads and axes are constants; negative pads cut elements off."""

    def refuse(self, node: TypedNode) -> Refusal | None:
        assert isinstance(node.op, Pad)
        if any(t is not None and t.value is None for t in node.inputs[1:]):
            return Refusal(Reason.DYNAMIC, "pads that are not constant")
        if not node.op.is_one_copy(node.given(0).dims, *_places(node)):
            return Refusal(Reason.SHAPE, f"mode {node.op.mode!r} adds more than one copy of the input")
        return None

    def pairs(self, call: Call) -> Iterable[tuple[Array, Array]]:
        op, src, dst = call.node.op, call.input(0), call.outputs[0]
        assert isinstance(op, Pad)
        if op.mode == "constant":
            yield dst, op.fill(src.dtype, call.optional(2))
        yield from op.copies(dst, src, *_places(call.node))


def _places(node: TypedNode) -> tuple[Array, Array | None]:
    """The pads and their axes."""
    pads, axes = node.given(1).value, node.optional(3)
    assert pads is not None
    return pads, None if axes is None else axes.value


KERNELS = (Padding(),)
