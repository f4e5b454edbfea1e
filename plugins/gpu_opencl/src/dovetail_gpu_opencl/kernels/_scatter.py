"""ScatterElements and ScatterND: every result is that of one update after the other, in their order."""

from abc import abstractmethod
from typing import Any

import numpy as np

from dovetail.dataclass import dataclass
from dovetail.device import DType, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, check_types, group_size, spread
from dovetail_gpu_opencl.kernels._axis import NUMBERS
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Constant, Fault, Launch, Read, Scratch, Write, ints
from dovetail_gpu_opencl.source import C_TYPES, MOVABLE, assemble, storage
from dovetail_ops_onnx.scatter_elements import ScatterElements
from dovetail_ops_onnx.scatter_nd import ScatterND

__all__ = ["Plan", "Scatter"]

_LONG, _FEW_LINES, _GROUP = 16, 1 << 15, 512
"""Updates of a line that a work group joins, the lines that leave a GPU idle otherwise, for an item takes 0.9 us an update, and
the most items of a group."""

_BLOCK, _KEY = 2048, 8
"""The most updates that a work group sorts at a time, and the bytes of a key of each in local memory."""

_COLUMNS, _PAIRS, _MOST_PLACES = 128, 1024, 64
"""Elements of a place, elements and places that a work group joins at most where it reads all indices for some places."""
_MEETING, _READS = 32, 1 << 28
"""Updates of a place, in the mean, and indices that all groups read, up to which that pays: sorting takes 25 us a block."""

_JOIN = {
    "add": "((a) + (b))",
    "mul": "((a) * (b))",
    "max": "((a) > (b) ? (a) : ((a) <= (b) ? (b) : (a) + (b)))",
    "min": "((a) < (b) ? (a) : ((a) >= (b) ? (b) : (a) + (b)))",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Where updates go, in slices of `inner` elements; `shape`, `rank`, `bound` and `step` as in scatter.cl.

    Updates of different lines never meet: there are `lines`, each of `size` updates at a stride of `apart`.
    """

    elements: bool
    count: int
    inner: int
    shape: tuple[int, ...]
    rank: int
    bound: int
    step: int
    lines: int
    size: int
    apart: int
    accepted: str


class Scatter(CLKernel):
    """scatter.cl: the last update of a place claims it; with a reduction, what may meet is done by one work item or group."""

    name = "scatter"
    dtypes = MOVABLE
    half_by_load = True
    bfloat16_by_load = True
    computes = False
    has_epilogue = False

    @abstractmethod
    def plan(self, node: TypedNode) -> Plan:
        """Where updates go."""

    def check(self, node: TypedNode) -> Refusal | None:
        if _reduction(node) == "none":
            return None
        return check_types(node, NUMBERS | {DType.BFLOAT16}, self.caps, half_by_load=True)

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        if not node.outputs[0].size:
            return ()
        plan = self.plan(node)
        return self._claimed(node, plan) if _reduction(node) == "none" else self._reduced(node, plan)

    def _claimed(self, node: TypedNode, plan: Plan) -> tuple[Launch, ...]:
        dst = node.outputs[0]
        word = WORDS[dst.dtype.itemsize]
        defines = {**_defines(node, plan), "T": word, "VALUE": word, "CLAIMS": True}
        claims = Scratch(f"scratch:{node.name}:0", 4 * (dst.size // plan.inner))
        data, index, updates = (Read(name) for name in node.node.inputs)
        out = Write(node.node.outputs[0])
        places = self._places(index, plan)
        return (
            self._launch(defines, "scatter_start", (data, out, claims, *ints(dst.size, plan.inner)), dst.size),
            self._launch(defines, "scatter_claim", (*places, claims, *ints(plan.count)), plan.count),
            self._launch(
                defines, "scatter_put", (*places, claims, updates, out, *ints(plan.count, plan.inner)), plan.count * plan.inner
            ),
        )

    def _reduced(self, node: TypedNode, plan: Plan) -> tuple[Launch, ...]:
        dst = node.outputs[0]
        narrow = dst.dtype in (DType.FLOAT16, DType.BFLOAT16)
        if (places := self._places_of_a_group(node, plan)) is not None:
            return (self._by_places(node, plan, places),)
        value = "float" if narrow else C_TYPES[dst.dtype]
        defines = {**_defines(node, plan), **storage(dst.dtype), "VALUE": value, "JOIN(a, b)": _JOIN[_reduction(node)]}
        data, index, updates = (Read(name) for name in node.node.inputs)
        out: Any = Write(node.node.outputs[0])
        sums = Scratch(f"scratch:{node.name}:0", 4 * dst.size) if narrow else out
        size = ints(dst.size)
        work = (*self._places(index, plan), updates, sums, *ints(plan.lines, plan.size, plan.apart, plan.inner))
        found = [self._launch(defines, "scatter_widen", (data, sums, *size), dst.size)]
        items = plan.lines * plan.inner
        if self.caps.kind == "GPU" and plan.size >= _LONG and items <= _FEW_LINES:
            block = self._block(plan, 4 if narrow else dst.dtype.itemsize)
            group = group_size(self.caps, min(_GROUP, block // 2))
            source = assemble("scatter.cl", {**defines, "GROUP": group, "BLOCK": block})
            found.append(Launch("scatter.cl", source, "scatter_reduce", work, (items * group,), (group,)))
        else:
            found.append(self._launch(defines, "scatter_reduce", work, items))
        if narrow:
            found.append(self._launch(defines, "scatter_round", (sums, out, *size), dst.size))
        return tuple(found)

    def _places_of_a_group(self, node: TypedNode, plan: Plan) -> int | None:
        """The places of which a work group joins all updates, in one launch; None where others are faster."""
        if self.caps.kind != "GPU" or plan.elements or plan.size < _LONG:
            return None
        places, columns = node.outputs[0].size // plan.inner, min(plan.inner, _COLUMNS)
        # Two groups for each compute unit.
        found = max(1, min(places // (2 * self.caps.compute_units), _MOST_PLACES, _PAIRS // columns))
        reads = ceil_div(places, found) * ceil_div(plan.inner, columns) * plan.size
        return found if plan.size <= _MEETING * places and reads <= _READS else None

    def _by_places(self, node: TypedNode, plan: Plan, places: int) -> Launch:
        dst, columns = node.outputs[0], min(plan.inner, _COLUMNS)
        narrow = dst.dtype in (DType.FLOAT16, DType.BFLOAT16)
        value = "float" if narrow else C_TYPES[dst.dtype]
        group = group_size(self.caps, _GROUP // 2)
        defines = {**_defines(node, plan), **storage(dst.dtype), "VALUE": value, "JOIN(a, b)": _JOIN[_reduction(node)]}
        defines |= {"GROUP": group, "BLOCK": _BLOCK, "PLACES": places, "COLUMNS": columns}
        data, index, updates = (Read(name) for name in node.node.inputs)
        count = dst.size // plan.inner
        arguments = (
            *self._places(index, plan),
            *(data, updates, Write(node.node.outputs[0])),
            *ints(count, plan.size, plan.inner),
        )
        work = (ceil_div(count, places) * group, ceil_div(plan.inner, columns))
        return Launch("scatter.cl", assemble("scatter.cl", defines), "scatter_places", arguments, work, (group, 1))

    def _block(self, plan: Plan, itemsize: int) -> int:
        """The updates that a work group sorts at a time: a power of two that half of the local memory holds."""
        fitting = self.caps.local_memory // 2 // (_KEY + itemsize)
        return min(_BLOCK, 1 << (plan.size - 1).bit_length(), 1 << (fitting.bit_length() - 1))

    def _places(self, index: Read, plan: Plan) -> tuple[Argument, ...]:
        shape = Constant(np.array(plan.shape, np.int32))
        return (
            index,
            shape,
            *ints(plan.rank, plan.bound, plan.step),
            Fault(f"an index is out of range; accepted: {plan.accepted}"),
        )

    def _launch(self, defines: dict[str, object], entry: str, arguments: tuple[Argument, ...], items: int) -> Launch:
        work, local = spread(items, self.caps)
        return Launch("scatter.cl", assemble("scatter.cl", defines), entry, arguments, work, local)


def _reduction(node: TypedNode) -> str:
    assert isinstance(node.op, ScatterElements | ScatterND)
    return node.op.reduction


def _defines(node: TypedNode, plan: Plan) -> dict[str, object]:
    return {"INDEX": C_TYPES[node.given(1).dtype], "ELEMENTS": plan.elements}
