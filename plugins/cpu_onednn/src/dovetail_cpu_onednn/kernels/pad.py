"""Pad: a copy into the middle of the result, and the borders: a constant, or copies of what is there already."""

from collections.abc import Callable, Iterable

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_onednn.kernel import value_of
from dovetail_cpu_onednn.kernels._movement import StridedCopy
from dovetail_cpu_onednn.python_kernel import Array
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

    def pairs(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[tuple[Array, Array]]:
        assert isinstance(node.op, Pad)
        src, dst = array(node.node.inputs[0]), array(node.node.outputs[0])
        if node.op.mode == "constant":
            value = node.optional(2)
            yield dst, node.op.fill(src.dtype, None if value is None else value_of(value.value))
        yield from node.op.copies(dst, src, *_places(node))


def _places(node: TypedNode) -> tuple[Array, Array | None]:
    """The pads and their axes."""
    axes = node.optional(3)
    return value_of(node.given(1).value), None if axes is None else axes.value


KERNELS = (Padding(),)
