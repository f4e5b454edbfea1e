"""ScatterElements and ScatterND: every result is that of one update after the other, in their order."""

from abc import abstractmethod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Refusal, TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, ceil_div, check_types, group_size, spread
from dovetail_gpu_opencl.kernels._axis import NUMBERS
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Constant, Fault, Launch, Local, Read, Scratch, Write, ints
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

_SMALL = 1 << 14
"""Elements that one work group of a GPU copies or writes: two launches more take 9 us."""

_LISTED, _LONGEST = 1 << 22, 256
"""Updates with constant places that are listed by place when a plan is made, and the most of a place, which a work item joins."""

_EACH = 1024
"""Elements that a work item of a CPU copies."""

_RUN = 64
"""Neighbours of a place that a work item of a CPU joins, in vectors: it finds the place once."""

_JOIN = {
    "none": "(b)",
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
    halves_by_load = True
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
        if (listed := self._listed(node, plan)) is not None:
            return (listed,)
        return self._claimed(node, plan) if _reduction(node) == "none" else self._reduced(node, plan)

    def _listed(self, node: TypedNode, plan: Plan) -> Launch | None:
        """The launch where places are constant and in range, and no item has too much to do."""
        index, reduction = node.given(1).value, _reduction(node)
        if index is None or not 0 < plan.count <= _LISTED:
            return None
        places, last = node.outputs[0].size // plan.inner, reduction == "none"
        lists = self.packed.get(index, ("scatter", plan, places, last), lambda: _by_place(index, plan, places, last))
        starts = lists[: places + 1]
        if not lists.size or int(np.diff(starts).max()) > _LONGEST:
            return None
        if last:
            word = WORDS[node.outputs[0].dtype.itemsize]
            defines: dict[str, object] = {
                "T": word,
                "VALUE": word,
                "LOAD_T(p, i)": "((p)[i])",
                "STORE_T(p, i, v)": "((p)[i] = (v))",
            }
        else:
            defines = {**storage(node.outputs[0].dtype), "VALUE": _value(node.outputs[0].dtype)}
        defines |= {"JOIN(a, b)": _JOIN[reduction]}
        data, _, updates = (Read(name) for name in node.node.inputs)
        out, listed = Write(node.node.outputs[0]), Constant(lists[places + 1 :])
        work, local = spread(node.outputs[0].size, self.caps)
        arguments: tuple[Argument, ...] = (data, updates, out, listed, Constant(starts), *ints(node.outputs[0].size, plan.inner))
        return Launch("scatter_listed.cl", assemble("scatter_listed.cl", defines), "scatter_listed", arguments, work, local)

    def _claimed(self, node: TypedNode, plan: Plan) -> tuple[Launch, ...]:
        dst = node.outputs[0]
        word = WORDS[dst.dtype.itemsize]
        each, puts = (_EACH, plan.count) if self.caps.kind == "CPU" else (1, plan.count * plan.inner)
        defines = {**_defines(node, plan), "T": word, "VALUE": word, "CLAIMS": True, "EACH": each}
        claims = Scratch(f"scratch:{node.name}:0", 4 * (dst.size // plan.inner))
        data, index, updates = (Read(name) for name in node.node.inputs)
        out = Write(node.node.outputs[0])
        places = self._places(index, plan)
        if (
            self.caps.kind == "GPU"
            and dst.size + plan.count * plan.inner <= _SMALL
            and claims.nbytes <= self.caps.local_memory // 2
        ):
            arguments = (*places, Local(claims.nbytes), data, updates, out, *ints(dst.size, plan.count, plan.inner))
            group = group_size(self.caps, _GROUP)
            source = assemble("scatter.cl", {**defines, "GROUP": group})
            return (Launch("scatter.cl", source, "scatter_at_once", arguments, (group,), (group,)),)
        return (
            self._launch(defines, "scatter_start", (data, out, claims, *ints(dst.size, plan.inner)), ceil_div(dst.size, each)),
            self._launch(defines, "scatter_claim", (*places, claims, *ints(plan.count)), plan.count),
            self._launch(defines, "scatter_put", (*places, claims, updates, out, *ints(plan.count, plan.inner)), puts),
        )

    def _reduced(self, node: TypedNode, plan: Plan) -> tuple[Launch, ...]:
        dst = node.outputs[0]
        narrow, value = dst.dtype in (DType.FLOAT16, DType.BFLOAT16), _value(dst.dtype)
        if (places := self._places_of_a_group(node, plan)) is not None:
            return (self._by_places(node, plan, places),)
        defines = {**_defines(node, plan), **storage(dst.dtype), "VALUE": value, "JOIN(a, b)": _JOIN[_reduction(node)]}
        data, index, updates = (Read(name) for name in node.node.inputs)
        out: Any = Write(node.node.outputs[0])
        sums = Scratch(f"scratch:{node.name}:0", 4 * dst.size) if narrow else out
        size, each = ints(dst.size), _EACH if self.caps.kind == "CPU" else 1
        defines["EACH"] = each
        work = (*self._places(index, plan), updates, sums, *ints(plan.lines, plan.size, plan.apart, plan.inner))
        found = [self._launch(defines, "scatter_widen", (data, sums, *size), ceil_div(dst.size, each))]
        items = plan.lines * plan.inner
        if self.caps.kind == "GPU" and plan.size >= _LONG and items <= _FEW_LINES:
            block = self._block(plan, 4 if narrow else dst.dtype.itemsize)
            group = group_size(self.caps, min(_GROUP, block // 2))
            source = assemble("scatter.cl", {**defines, "GROUP": group, "BLOCK": block})
            found.append(Launch("scatter.cl", source, "scatter_reduce", work, (items * group,), (group,)))
        else:
            run = _RUN if self.caps.kind == "CPU" else 1
            items = plan.lines * ceil_div(plan.inner, run)
            found.append(self._launch({**defines, "RUN": run}, "scatter_reduce", work, items))
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
        group = group_size(self.caps, _GROUP // 2)
        defines = {
            **_defines(node, plan),
            **storage(dst.dtype),
            "VALUE": _value(dst.dtype),
            "JOIN(a, b)": _JOIN[_reduction(node)],
        }
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


def _by_place(index: NDArray[Any], plan: Plan, places: int, last: bool) -> NDArray[np.int32]:
    """Where the updates of each place begin in a list of all by place, places + 1 numbers, then the list.

    With `last` only the last update of each place. Empty if one is out of range.
    """
    flat, sizes, steps = index.reshape(-1).astype(np.int64), plan.shape[: plan.rank], plan.shape[plan.rank :]
    if plan.elements:
        coordinates, bounds = flat[:, None], [plan.bound]
        at = sum(
            (grid * step for grid, step in zip(np.ogrid[tuple(map(slice, sizes))], steps, strict=True)), np.zeros(sizes, np.int64)
        )
        at, steps = at.reshape(-1), (plan.step,)
    else:
        coordinates = flat[np.arange(plan.count)[:, None] * plan.step + np.arange(plan.rank)]
        at, bounds = np.zeros(plan.count, np.int64), [*sizes]
    if np.any(coordinates < -np.array(bounds)) or np.any(coordinates >= bounds):
        return np.empty(0, np.int32)
    at = at + np.where(coordinates < 0, coordinates + bounds, coordinates) @ np.array(steps, np.int64)
    order = np.argsort(at, kind="stable")
    if last:
        order = order[np.append(np.diff(at[order]) > 0, True)]
    starts = np.searchsorted(at[order], np.arange(places + 1))
    return np.concatenate([starts, order]).astype(np.int32)


def _value(dtype: DType) -> str:
    """The C type in which updates are joined."""
    return "float" if dtype in (DType.FLOAT16, DType.BFLOAT16) else C_TYPES[dtype]


def _reduction(node: TypedNode) -> str:
    assert isinstance(node.op, ScatterElements | ScatterND)
    return node.op.reduction


def _defines(node: TypedNode, plan: Plan) -> dict[str, object]:
    return {"INDEX": C_TYPES[node.given(1).dtype], "ELEMENTS": plan.elements}
