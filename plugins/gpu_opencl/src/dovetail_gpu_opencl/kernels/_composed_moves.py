"""Moves one after the other as one: which elements of the first source reach which places of the last result.

A move covers a box of a mixed radix system: the strides along which it writes, or reads, the value between two moves. Both moves
are brought to the strides of both, where their boxes are compared digit by digit.
"""

import itertools
from collections.abc import Sequence

from dovetail.dataclass import dataclass
from dovetail.device import TensorType
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernels._copy import Move
from dovetail_gpu_opencl.launch import Constant

__all__ = ["composed", "in_memory", "whole"]


@dataclass(frozen=True, slots=True)
class _Axis:
    """An axis of a move: its size, its stride in the value between two moves, and that in the other value of the move."""

    size: int
    stride: int
    other: int


def whole(src: str, dst: str, size: int) -> Move:
    """The move of a value as it is, such as a view."""
    return Move(src, dst, (size,), (1,), (1,))


def in_memory(move: Move, source: TensorType, result: TensorType) -> Move | None:
    """A move between dense plain tensors as one between the layouts of `source` and `result`; None where that is not one."""
    if source.order != (*range(source.rank),):
        stored = Move(move.src, move.dst, source.dims, _strides(source), strides_of(source.dims))
        found = composed(stored, move)
        if found is None:
            return None
        move = found
    if result.order != (*range(result.rank),):
        return composed(move, Move(move.dst, move.dst, result.dims, strides_of(result.dims), _strides(result)))
    return move


def _strides(tensor: TensorType) -> tuple[int, ...]:
    steps = dict(zip(tensor.order, strides_of(tensor.memory_dims), strict=True))
    return tuple(steps[axis] for axis in range(tensor.rank))


def composed(first: Move, second: Move) -> Move | None:
    """The move from the source of `first` to the result of `second`, which reads what `first` writes.

    It has no elements where the second one reads nothing of this. None where the boxes do not fit each other: both together may
    still be a function, but not a move.
    """
    writes, write_from, src_offset = _ascending(
        first.dims, first.dst_strides, first.src_strides, first.dst_offset, first.src_offset
    )
    reads, read_from, dst_offset = _ascending(
        second.dims, second.src_strides, second.dst_strides, second.src_offset, second.dst_offset
    )
    repeated = [axis for axis in reads if not axis.stride]
    reads = [axis for axis in reads if axis.stride]
    radices = _radices(sorted({1, *(axis.stride for axis in (*writes, *reads))}))
    if radices is None or not all(axis.stride for axis in writes):
        return None
    one, other = _box(writes, write_from, radices), _box(reads, read_from, radices)
    if one is None or other is None:
        return None
    axes = [(axis.size, 0, axis.other) for axis in repeated]
    for (start, size, step), (begin, count, stride) in zip(one, other, strict=True):
        low = max(start, begin)
        src_offset += (low - start) * step
        dst_offset += (low - begin) * stride
        axes.append((max(0, min(start + size, begin + count) - low), step, stride))
    return _tidy(first.src, second.dst, axes, src_offset, dst_offset)


def _ascending(
    dims: Sequence[int], strides: Sequence[int], others: Sequence[int], offset: int, other_offset: int
) -> tuple[list[_Axis], int, int]:
    """The axes of more than one element, those of negative strides turned round, and the offsets of their first elements."""
    axes = []
    for size, stride, other in zip(dims, strides, others, strict=True):
        if size == 1:
            continue
        if stride < 0:
            offset += (size - 1) * stride
            other_offset += (size - 1) * other
            stride, other = -stride, -other
        axes.append(_Axis(size, stride, other))
    return axes, offset, other_offset


def _radices(steps: Sequence[int]) -> list[tuple[int, int]] | None:
    """For each digit its stride and number of values, 0 for any; None where a stride does not divide the next one."""
    if any(after % before for before, after in itertools.pairwise(steps)):
        return None
    return [(step, after // step) for step, after in zip(steps, (*steps[1:], 0), strict=True)]


def _box(axes: Sequence[_Axis], offset: int, radices: Sequence[tuple[int, int]]) -> list[tuple[int, int, int]] | None:
    """For each digit the first value, how many there are, and the stride in the other value; None where it is not a box."""
    found = []
    left = {axis.stride: axis for axis in axes}
    if len(left) < len(axes):
        return None
    for step, count in radices:
        start = offset // step % count if count else offset // step
        axis = left.pop(step, None)
        size, other = (1, 0) if axis is None else (axis.size, axis.other)
        if count and size > count:  # the rest of the axis is the next digit's
            if size % count or step * count in left:
                return None
            left[step * count] = _Axis(size // count, step * count, other * count)
            size = count
        if count and start + size > count:
            return None
        found.append((start, size, other))
    return found


def _tidy(src: str | Constant, dst: str, axes: Sequence[tuple[int, int, int]], src_offset: int, dst_offset: int) -> Move:
    """The move with its axes in the order of the result, without those of one element, neighbours as one."""
    if any(size == 0 for size, _, _ in axes):
        return Move(src, dst, (0,), (1,), (1,))
    dims, others, strides = (tuple(axis[i] for axis in axes) for i in range(3))
    turned, dst_offset, src_offset = _ascending(dims, strides, others, dst_offset, src_offset)
    merged: list[_Axis] = []
    for axis in sorted(turned, key=lambda axis: axis.stride, reverse=True):
        last = merged[-1] if merged else None
        if last is not None and (last.stride, last.other) == (axis.stride * axis.size, axis.other * axis.size):
            merged[-1] = _Axis(last.size * axis.size, axis.stride, axis.other)
        else:
            merged.append(axis)
    found = merged or [_Axis(1, 1, 1)]
    sizes, steps = tuple(axis.size for axis in found), tuple(axis.other for axis in found)
    return Move(src, dst, sizes, steps, tuple(axis.stride for axis in found), src_offset, dst_offset)
