"""JoinedMoves: nodes that only move elements, in one launch."""

import itertools
from collections.abc import Sequence

from dovetail.device import NHWC, PLAIN, LayerConfig, Layout, Reason, Refusal, TensorType, TypedNode
from dovetail_gpu_opencl.kernels._composed_moves import in_memory
from dovetail_gpu_opencl.kernels._copy import Move, MoveKernel
from dovetail_gpu_opencl.kernels._joined_moves import JoinedMoves

__all__ = ["KERNELS"]

_FREE = 5
"""Values whose layouts are chosen each for itself; with more of them all inputs have the same, and all outputs."""
_LARGE = 1 << 21
"""Elements from which on a reorder by tiles is faster than a move that also changes the layout."""


class Moves(MoveKernel):
    """copies.cl, each value in a layout of its own."""

    mixes = True
    converts = True

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind == "CPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        return Refusal(Reason.SHAPE, "in these sizes they are not moves") if self._found(node) is None else None

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        values = (*node.inputs, *node.outputs)
        free = [i for i, t in enumerate(values) if t is not None and t.value is None and NHWC.fits(t.rank)]
        read = sum(i < len(node.inputs) for i in free)
        ways = itertools.product((PLAIN, NHWC), repeat=2)
        choices = [(source,) * read + (result,) * (len(free) - read) for source, result in ways]
        if sum(t.size for t in node.outputs) >= _LARGE:
            choices = [choice for choice in choices if len(set(choice)) == 1]
        elif len(free) <= _FREE:
            choices = list(itertools.product((PLAIN, NHWC), repeat=len(free)))
        return [found for choice in dict.fromkeys(choices) if (found := self._in(node, dict(zip(free, choice, strict=True))))]

    def _in(self, node: TypedNode, layouts: dict[int, Layout]) -> LayerConfig | None:
        count = len(node.inputs)
        found = tuple(layouts.get(i, PLAIN) for i in range(count + len(node.outputs)))
        types = [_in_layout(t, layout) for t, layout in zip((*node.inputs, *node.outputs), found, strict=True)]
        outputs = tuple(t for t in types[count:] if t is not None)
        if self._found(TypedNode(node.node, tuple(types[:count]), outputs)) is None:
            return None
        return LayerConfig(found[:count], found[count:])

    def moves(self, node: TypedNode) -> Sequence[Move]:
        found = self._found(node)
        assert found is not None
        return found

    def _found(self, node: TypedNode) -> Sequence[Move] | None:
        """The moves between the places in memory, by the names that the values have now."""
        assert isinstance(node.op, JoinedMoves)
        maps = node.op.moves([_in_layout(t, PLAIN) for t in node.inputs], self)
        if maps is None:
            return None
        sources = dict(zip(node.op.reads, zip(node.node.inputs, node.inputs, strict=True), strict=True))
        moves = []
        for name, result, written in zip(node.node.outputs, node.outputs, node.op.writes, strict=True):
            for move in maps[written]:
                source, tensor = sources[str(move.src)]
                assert tensor is not None
                found = in_memory(move, tensor, result)
                if found is None:
                    return None
                moves.append(
                    Move(source, name, found.dims, found.src_strides, found.dst_strides, found.src_offset, found.dst_offset)
                )
        return moves


def _in_layout(tensor: TensorType | None, layout: Layout) -> TensorType | None:
    return tensor if tensor is None or tensor.layout == layout else tensor.with_layout(layout)


KERNELS = (Moves(),)
