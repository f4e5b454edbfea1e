"""Slice."""

from collections.abc import Sequence

from dovetail.device import ANY, PLAIN, LayerConfig, Reason, Refusal, TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel

__all__ = ["KERNELS"]


class Slice(MoveKernel):
    """A copy with multiplied strides and an offset."""

    def check(self, node: TypedNode) -> Refusal | None:
        if any(t is not None and t.value is None for t in node.inputs[1:]):
            return Refusal(Reason.DYNAMIC, "starts, ends, axes or steps are not constant")
        return None

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig((ANY, *(PLAIN,) * (len(node.inputs) - 1)), (ANY,)),)

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def moves(self, node: TypedNode) -> Sequence[Move]:
        src, dst = node.given(0), node.outputs[0]
        steps, offset = list(strides_of(src.memory_dims)), 0
        starts = {src.order.index(axis): start for axis, start in _starts(node).items()}
        for axis, (start, step) in starts.items():
            offset += start * steps[axis]
            steps[axis] *= step
        dims, names = dst.memory_dims, (node.node.inputs[0], node.node.outputs[0])
        return [Move(*names, dims, tuple(steps), strides_of(dims), offset, cuts=tuple(starts))]


def _starts(node: TypedNode) -> dict[int, tuple[int, int]]:
    """Axis -> first element and step."""
    src = node.given(0)
    given = [None if t is None or t.value is None else t.value.reshape(-1).tolist() for t in node.inputs[1:]]
    starts, ends, axes, steps = [*given, None, None][:4]
    assert starts is not None
    assert ends is not None
    chosen = range(len(starts)) if axes is None else [axis % src.rank for axis in axes]
    strides = [1] * len(starts) if steps is None else steps
    found = {}
    for axis, start, end, step in zip(chosen, starts, ends, strides, strict=True):
        size = src.dims[axis]
        first, _, stride = slice(max(start, -size), end, step).indices(size)  # ONNX clamps a start to the first element
        # A step that leaves one element may be anything up to 2^63, and does not matter.
        found[axis] = (first, stride if node.outputs[0].dims[axis] > 1 else 1)
    return found


KERNELS = (Slice(),)
