"""Gather."""

import itertools
import math
from collections.abc import Sequence

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, spread
from dovetail_gpu_opencl.kernels._copy import WORDS, Move, MoveKernel, post_ops_refusal
from dovetail_gpu_opencl.launch import Argument, Fault, Launch, Read, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import C_TYPES, MOVABLE, assemble, storage
from dovetail_ops_onnx.gather import Gather, outside

__all__ = ["KERNELS"]

_LONG, _STEP = 4, 64
"""Words of a slice from which on a work item of a CPU moves so many, and looks at an index once for a slice."""


class GatherKernel(CLKernel):
    """gather.cl: a word a work item, with post-ops an element; on CPUs several words of long slices.

    An index out of range reads element 0 and raises the fault flag. Constant indices are checked here.
    """

    name = "gather"
    dtypes = MOVABLE
    computes = False

    def check(self, node: TypedNode) -> Refusal | None:
        data, indices = node.given(0), node.given(1)
        if indices.dtype not in (DType.INT32, DType.INT64):
            return Refusal(Reason.DTYPE, f"indices of {indices.dtype}")
        if data.dims[_axis(node)] == 0 and indices.size:
            return Refusal(Reason.SHAPE, "the axis is empty")
        if node.post_ops and indices.value is None:
            return Refusal(Reason.POST_OP, "indices that are not constant: lookups go into the sums of embeddings")
        return post_ops_refusal(node, self.caps)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        data, indices = node.given(0), node.given(1)
        axis = _axis(node)
        inner, itemsize = math.prod(data.dims[axis + 1 :]), data.dtype.itemsize
        width = max(w for w in (1, 2, 4, 8, 16) if inner % w == 0 and itemsize * w <= max(WORDS))
        width = 1 if node.post_ops else width
        bound, size = data.dims[axis], node.outputs[0].size // width
        numbers = {"SIZE": size, "AXIS": bound, "COUNT": indices.size, "INNER": inner // width}
        types: dict[str, object] = {"T": WORDS[itemsize * width]}
        if node.post_ops:
            types = {**storage(data.dtype), "COMPUTED": True}
        is_checked = indices.value is not None and (not indices.size or not outside(indices.value, bound))
        types |= {"INDEX": C_TYPES[indices.dtype], "CHECKED": not is_checked}
        defines, sizes = by_value({**types, **numbers}, ("SIZE", "AXIS"), ("COUNT", "INNER"))
        step = _STEP if self.caps.kind == "CPU" and not node.post_ops and inner >= _LONG * width else 1
        if step > 1:
            defines["STEP"] = step
        fault = Fault(f"an index is outside axis {axis} of size {bound}; accepted: {-bound} to {bound - 1}")
        chain = post_ops.epilogue(node)
        names, faults = node.node.inputs, () if is_checked else (fault,)
        arguments: tuple[Argument, ...] = (
            *(Read(name) for name in names),
            Write(node.node.outputs[0]),
            *faults,
            *sizes,
            *chain.arguments,
        )
        work, local = spread(ceil_div(size, step), self.caps)
        source = assemble("gather.cl", defines, chain.source)
        return (Launch("gather.cl", source, "gather", arguments, work, local),)


def _axis(node: TypedNode) -> int:
    assert isinstance(node.op, Gather)
    return node.op.axis % node.given(0).rank


def _span(node: TypedNode) -> tuple[int, int, int] | None:
    """First index, distance and number of constant indices that are at equal distances and inside the axis; None for others."""
    data, indices = node.given(0), node.given(1)
    bound = data.dims[_axis(node)]
    if indices.value is None or not indices.size or outside(indices.value, bound):
        return None
    numbers = [int(number) % bound for number in indices.value.reshape(-1)]
    distance = numbers[1] - numbers[0] if len(numbers) > 1 else 1
    is_even = all(after - before == distance for before, after in itertools.pairwise(numbers))
    return (numbers[0], distance, len(numbers)) if distance and is_even else None


class GatheredSlices(MoveKernel):
    """For constant indices at equal distances, one among them: a slice."""

    def check(self, node: TypedNode) -> Refusal | None:
        if self.caps.kind == "CPU":
            return Refusal(Reason.CAPABILITY, "made for GPUs")
        return Refusal(Reason.SHAPE, "indices at several distances, not constant, or outside") if _span(node) is None else None

    def moves(self, node: TypedNode) -> Sequence[Move]:
        data, axis, span = node.given(0), _axis(node), _span(node)
        assert span is not None
        (first, distance, count), inner = span, math.prod(data.dims[axis + 1 :])
        dims, whole = (math.prod(data.dims[:axis]), count, inner), data.dims[axis] * inner
        steps, packed = (whole, distance * inner, 1), (count * inner, inner, 1)
        return [Move(node.node.inputs[0], node.node.outputs[0], dims, steps, packed, first * inner, cuts=(1,))]


KERNELS = (GatheredSlices(), GatherKernel())
