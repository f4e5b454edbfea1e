"""Memory plan: which values share memory, how long each lives, and where it is in one arena."""

from bisect import bisect
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from operator import itemgetter
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.graph.graph import Graph, Node
from dovetail.locks import cached_property

__all__ = ["Lifetime", "MemoryPlan", "plan_graph", "plan_memory", "plan_regions", "share_storage", "shares_again"]

MANY = 768
"""Blocks from which on a layout in the order of time is tried first."""
LONG = 384
"""Steps that blocks live in the mean from which on lists of those that live at each step take longer than arrays."""
GAPS = 256
"""Free ranges from which on a layout in the order of time is given up."""
EXCESS = 9 / 8
"""How much more memory a plan may take that has the order of one for other sizes, as a share of what lives at one step."""
ALIGNMENT = 64
"""Bytes: a cache line, and the widest vector of current CPUs."""


@dataclass(frozen=True, slots=True)
class Lifetime:
    """A block of memory and the steps between which it holds something, both ends included."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """Offsets in one arena.

    `storage` maps each value to the value whose block holds it (itself, unless it is a view or written in place);
    `offsets` has the byte offset of each block; `peak` is the arena's size in bytes; `blocks` are all of them with the steps at
    which they live, `sizes` gives the bytes of each value in the arena. A plan in the order of another one is `like` that.
    """

    storage: Mapping[str, str] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)
    peak: int = 0
    blocks: tuple[Lifetime, ...] = field(default=(), repr=False)
    sizes: Callable[[], Iterable[int]] = field(default=tuple, compare=False, repr=False)
    like: "MemoryPlan | None" = field(default=None, compare=False, repr=False)

    @property
    def unshared(self) -> int:
        """The bytes that the values would take without reuse."""
        return sum(self.sizes())

    def lasting(self, graph: Graph) -> frozenset[int]:
        """The inputs of the graph, by number, over which a run writes nothing: their content may stay for the next run."""
        written = {self.storage[name] for node in graph.nodes for name in node.writes}
        names = np.array([block.name for block in self.blocks], object)
        starts = np.array([self.offsets[block.name] for block in self.blocks], np.int64)
        ends = starts + np.array([block.nbytes for block in self.blocks], np.int64)
        found = []
        for number, name in enumerate(graph.inputs):
            root = self.storage[name]
            (own,) = np.nonzero(names == root)
            if len(own) == 1 and root not in written and ((starts < ends[own]) & (ends > starts[own])).sum() == 1:
                found.append(number)
        return frozenset(found)

    @cached_property
    def order(self) -> tuple[tuple[Lifetime, tuple[str, ...]], ...]:
        """The blocks by their offsets, each with those below it that live at the same time."""
        ordered = sorted(self.blocks, key=lambda b: self.offsets[b.name])
        names = np.array([b.name for b in ordered], object)
        first, last = np.array([(b.first, b.last) for b in ordered], np.int64).reshape(-1, 2).T
        rows = np.tril((first[:, None] <= last) & (first <= last[:, None]), -1)
        return tuple([(b, tuple(names[row].tolist())) for b, row in zip(ordered, rows, strict=True)])

    @cached_property
    def fullest(self) -> int:
        """The most bytes that live at one step."""
        return _fullest(self.blocks, {block.name: _aligned(block.nbytes, ALIGNMENT) for block in self.blocks})

    def resized(self, sizes: Mapping[str, int], values: Callable[[], Iterable[int]]) -> "MemoryPlan | None":
        """The plan for blocks of other sizes (whole lines) with the same lives, in the same order; `values` as in the fields.

        None for other blocks, for so many that they are laid out by time, and where it takes more than `EXCESS`.
        """
        base = self.like or self
        if len(sizes) != len(base.blocks) or len(sizes) > MANY or not all(block.name in sizes for block in base.blocks):
            return None
        ends: dict[str, int] = {}
        offsets: dict[str, int] = {}
        for block, below in base.order:
            name = block.name
            offsets[name] = offset = max([ends[other] for other in below]) if below else 0
            ends[name] = offset + sizes[name]
        peak = max(ends.values(), default=0)
        if peak * base.fullest > EXCESS * base.peak * _fullest(base.blocks, sizes):
            return None
        return MemoryPlan(self.storage, MappingProxyType(offsets), peak, (), values, base)

    def regions_resized(self, sizes: Mapping[str, int], values: Callable[[], Iterable[int]]) -> "MemoryPlan | None":
        """As `resized`, for a plan by `plan_regions`: each region is as large as the largest of its blocks."""
        base = self.like or self
        if len(sizes) != len(base.blocks) or not all(block.name in sizes for block in base.blocks):
            return None
        largest: dict[int, int] = {}
        for name, region in base.offsets.items():
            largest[region] = max(largest.get(region, 0), sizes[name])
        starts = dict(zip(largest, accumulate(largest.values(), initial=0), strict=False))
        peak = sum(largest.values())
        if peak * base.fullest > EXCESS * base.peak * _fullest(base.blocks, sizes):
            return None
        offsets = {name: starts[region] for name, region in base.offsets.items()}
        return MemoryPlan(self.storage, MappingProxyType(offsets), peak, (), values, base)


def _fullest(blocks: Sequence[Lifetime], sizes: Mapping[str, int]) -> int:
    changes = [0] * (max([block.last for block in blocks], default=0) + 3)
    for block in blocks:
        size = sizes[block.name]
        changes[block.first + 1] += size  # inputs live from step -1
        changes[block.last + 2] -= size
    return max(accumulate(changes))


def plan_memory(blocks: Iterable[Lifetime], alignment: int = ALIGNMENT) -> tuple[Mapping[str, int], int]:
    """Byte offsets for blocks such that no two that live at the same time overlap, and the arena's size.

    Greedy by size, best fit: the largest block first, each into the smallest gap among those that live with it. Many blocks
    are first laid out in the order of time, which is quick and mostly needs no more than what lives at one step.
    """
    given = [*blocks]
    if len(given) > MANY and (found := _by_time(given, alignment)) is not None:
        return found
    ordered = sorted(given, key=lambda b: (-b.nbytes, b.first, b.name))
    lives_long = sum([b.last - b.first for b in ordered]) > LONG * len(ordered)
    placed = _Placed(len(ordered)) if lives_long else _PlacedBySteps(ordered)
    offsets: dict[str, int] = {}
    peak = 0
    for block in ordered:
        size = _aligned(block.nbytes, alignment)
        offset = offsets[block.name] = placed.best_gap(block, size)
        placed.add(block, offset, offset + size)
        peak = max(peak, offset + size)
    return MappingProxyType(offsets), peak


def _by_time(blocks: Sequence[Lifetime], alignment: int) -> tuple[Mapping[str, int], int] | None:
    """As `plan_memory`, but first fit from the last step to the first; None where that takes more than what lives at one step.

    Backwards, because outputs live to the end: so they are side by side, and what is free is behind them.
    """
    gaps = [(0, 1 << 62)]
    leaving = sorted([(b.first, b.last, b.name, _aligned(b.nbytes, alignment)) for b in blocks], key=itemgetter(0))
    offsets: dict[str, int] = {}
    used = most = peak = 0
    # Backwards; of those with one last step the one that leaves last comes first.
    for _, last, name, size in sorted(leaving, key=itemgetter(1), reverse=True):
        while leaving[-1][0] > last:
            _, _, left, freed = leaving.pop()
            start = offsets[left]
            used, end, at = used - freed, start + freed, bisect(gaps, (start,))
            before, after = at and gaps[at - 1][1] == start, gaps[at][0] == end
            gaps[at - before : at + after] = [(gaps[at - before][0] if before else start, gaps[at][1] if after else end)]
        for at, (start, end) in enumerate(gaps):  # noqa: B007  # the last gap has no end
            if end - start >= size:
                break
        gaps[at : at + 1] = [(start + size, end)] if end - start > size else []
        offsets[name] = start
        used += size
        most, peak = max(most, used), max(peak, start + size)
        if len(gaps) > GAPS:
            return None
    return (MappingProxyType(offsets), peak) if peak == most else None


class _PlacedBySteps:
    """The blocks placed so far, by the steps at which they begin and live: without NumPy, for blocks that live for few steps."""

    def __init__(self, blocks: Sequence[Lifetime]) -> None:
        self._since = min([b.first for b in blocks], default=0)
        steps = range(self._since, max([b.last for b in blocks], default=0) + 1)
        self._beginning: list[list[tuple[int, int]]] = [[] for _ in steps]
        self._living: list[list[tuple[int, int]]] = [[] for _ in steps]

    def best_gap(self, block: Lifetime, size: int) -> int:
        """Where the smallest gap that is large enough begins, the first of several; else behind all that live with the block."""
        first, last = block.first - self._since, block.last - self._since
        rivals = self._living[first].copy()
        for beginning in self._beginning[first + 1 : last + 1]:
            rivals += beginning
        rivals.sort()
        best, room, end = -1, 0, 0
        for start, stop in rivals:
            if start - end >= size and (best < 0 or start - end < room):
                best, room = end, start - end
            if stop > end:
                end = stop
        return end if best < 0 else best

    def add(self, block: Lifetime, start: int, end: int) -> None:
        """Note a block at its place."""
        first, last, place = block.first - self._since, block.last - self._since, (start, end)
        self._beginning[first].append(place)
        for living in self._living[first : last + 1]:
            living.append(place)


class _Placed:
    """As `_PlacedBySteps`, by where the blocks are: in arrays, so that looking for those that live with a block stays cheap."""

    def __init__(self, count: int) -> None:
        self._rows = np.empty((4, count), np.int64)
        self._count = 0

    def best_gap(self, block: Lifetime, size: int) -> int:
        """As `_PlacedBySteps.best_gap`."""
        starts, ends, first, last = self._rows[:, : self._count]
        together = np.flatnonzero((first <= block.last) & (last >= block.first))
        return _best_gap(starts[together], ends[together], size)

    def add(self, block: Lifetime, start: int, end: int) -> None:
        """Note a block at its place."""
        at, count = int(self._rows[0, : self._count].searchsorted(start)), self._count
        self._rows[:, at + 1 : count + 1] = self._rows[:, at:count]
        self._rows[:, at] = start, end, block.first, block.last
        self._count += 1


def plan_regions(blocks: Iterable[Lifetime], alignment: int = ALIGNMENT) -> tuple[Mapping[str, int], int]:
    """As `plan_memory`, but two blocks have either the same offset or no byte in common, whenever they live.

    For devices whose memory comes as whole buffers: one for each offset, as large as its first, largest block. Greedy by
    size: each block takes the smallest region that is free all its life.
    """
    ordered = sorted(blocks, key=lambda b: (-b.nbytes, b.first, b.name))
    lives_long = sum([b.last - b.first for b in ordered]) > LONG * len(ordered)
    regions = _Regions(len(ordered)) if lives_long else _RegionsBySteps(ordered)
    places: list[int] = []
    offsets: dict[str, int] = {}
    end = 0
    for block in ordered:
        region = regions.smallest_free(block)
        if region < 0:
            region, size = len(places), _aligned(block.nbytes, alignment)
            regions.new(size)
            places.append(end)
            end += size
        regions.take(block, region)
        offsets[block.name] = places[region]
    return MappingProxyType(offsets), end


class _RegionsBySteps:
    """Which regions are taken at each step, as bits of whole numbers: for blocks that live for few steps."""

    def __init__(self, blocks: Sequence[Lifetime]) -> None:
        self._since = min([b.first for b in blocks], default=0)
        self._taken = [0] * (max([b.last for b in blocks], default=0) + 1 - self._since)
        self._sizes: list[int] = []
        self._alike: list[int] = []

    def smallest_free(self, block: Lifetime) -> int:
        """The smallest region that is free all the life of the block, the first of several; -1 for none."""
        taken = 0
        for step in self._taken[block.first - self._since : block.last - self._since + 1]:
            taken |= step
        free = ~taken & ((1 << len(self._sizes)) - 1)
        if not free:
            return -1
        start = self._alike[free.bit_length() - 1]
        free >>= start
        return start + (free & -free).bit_length() - 1

    def new(self, size: int) -> None:
        """One more region, which is not larger than those before: the first of its size is the first of several."""
        alike = bool(self._sizes) and self._sizes[-1] == size
        self._alike.append(self._alike[-1] if alike else len(self._sizes))
        self._sizes.append(size)

    def take(self, block: Lifetime, region: int) -> None:
        """Put the block into a region."""
        for step in range(block.first - self._since, block.last - self._since + 1):
            self._taken[step] |= 1 << region


class _Regions:
    """As `_RegionsBySteps`, in arrays of all blocks."""

    def __init__(self, count: int) -> None:
        self._first, self._last, self._home = np.empty((3, count), np.int64)
        self._sizes = np.empty(count)
        self._blocks = self._count = 0

    def smallest_free(self, block: Lifetime) -> int:
        """As `_RegionsBySteps.smallest_free`."""
        free, done = self._sizes[: self._count].copy(), slice(self._blocks)
        free[self._home[done][(self._first[done] <= block.last) & (self._last[done] >= block.first)]] = np.inf
        region = int(free.argmin()) if self._count else -1
        return -1 if region < 0 or free[region] == np.inf else region

    def new(self, size: int) -> None:
        """One more region."""
        self._sizes[self._count] = size
        self._count += 1

    def take(self, block: Lifetime, region: int) -> None:
        """Put the block into a region."""
        self._first[self._blocks], self._last[self._blocks], self._home[self._blocks] = block.first, block.last, region
        self._blocks += 1


def _aligned(nbytes: int, alignment: int) -> int:
    # A block without bytes still gets an address of its own: devices cannot make buffers of size zero.
    return max(1, -(-nbytes // alignment)) * alignment


def _best_gap(starts: NDArray[np.int64], ends: NDArray[np.int64], size: int) -> int:
    """Where the smallest gap between rivals begins that is large enough, the first of several; else behind them all."""
    if not starts.size:
        return 0
    covered = np.maximum.accumulate(ends)
    begins = np.concatenate(([0], covered[:-1]))
    gaps = starts - begins
    fits = np.flatnonzero(gaps >= size)
    return int(begins[fits[gaps[fits].argmin()]]) if fits.size else int(covered[-1])


def share_storage(
    graph: Graph, in_place: Callable[[Node], Sequence[str]], continues: Callable[[Node], Mapping[str, str]] | None = None
) -> Mapping[str, str]:
    """Value -> the value whose block holds it, for a graph in schedule order.

    Views (`Operator.is_view`) share their input's block. `in_place(node)` names the inputs whose block output 0 may take
    over; that happens when the block is as large, dies at this node, and is neither an input of the graph nor a constant.
    `continues(node)` maps outputs to inputs into whose block the node may write them: that happens for states of the graph, with
    outputs of the same type.
    """
    states = {name: graph.outputs[index] for name, index in graph.states.items()}
    storage = {name: name for name in (*graph.inputs, *graph.constants)}
    kept = frozenset(storage)
    last = {name: step for step, node in enumerate(graph.nodes) for name in node.reads}
    last |= dict.fromkeys(graph.outputs, len(graph.nodes))
    alive_until = {name: last.get(name, -1) for name in storage}
    for step, node in enumerate(graph.nodes):
        reads = [storage[name] for name in node.reads]
        storage.update((name, name) for name in node.writes)
        dying = [root for root in reads if alive_until[root] <= step and root not in kept]
        is_view = node.op.is_view and not node.post_ops
        for source in node.inputs[:1] if is_view else in_place(node) if dying else ():
            if source and _may_take(graph, node, storage[source], storage, None if is_view else dying):
                storage[node.outputs[0]] = storage[source]
                break
        for name, source in (continues(node) if states and continues else {}).items():
            root, is_alike = storage[source], graph.types[name] == graph.types[source]
            if is_alike and states.get(root) == name and alive_until[root] <= step and reads.count(root) == 1:
                storage[name] = root
        for name in node.writes:
            root, until = storage[name], last.get(name, step)
            alive_until[root] = max(alive_until.get(root, -1), until)
    return MappingProxyType(storage)


def shares_again(graph: Graph, storage: Mapping[str, str], in_place: Callable[[Node], Sequence[str]]) -> bool:
    """Whether values may share memory as `share_storage` found for the same nodes in other sizes. Not for graphs with states."""
    for node in graph.nodes:
        result = node.outputs[0]
        root = storage[result] if result else result
        if root != result and (not node.op.is_view or node.post_ops):
            sources = [name for name in in_place(node) if name and storage[name] == root]
            if not sources or not _may_take(graph, node, root, storage, [root]):
                return False
    return True


def _may_take(graph: Graph, node: Node, root: str, storage: Mapping[str, str], dying: Sequence[str] | None) -> bool:
    """`dying` are the blocks that only this node still reads; None for a view, which writes nothing."""
    if not node.outputs[0]:
        return False
    if dying is None:
        # A view with further outputs, such as the mask of Dropout, is run, and what runs writes no constant.
        return root not in graph.constants or node.writes == node.outputs[:1]
    result = graph.types[node.outputs[0]]
    layouts = {graph.types[name].layout for name in node.reads if storage[name] == root}
    return dying.count(root) == 1 and graph.types[root].nbytes == result.nbytes and layouts == {result.layout}


def plan_graph(
    graph: Graph,
    in_place: Callable[[Node], Sequence[str]],
    scratch: Callable[[Node], Sequence[int]] | None = None,
    alignment: int = ALIGNMENT,
    plan: Callable[[Iterable[Lifetime], int], tuple[Mapping[str, int], int]] = plan_memory,
    continues: Callable[[Node], Mapping[str, str]] | None = None,
    storage: Mapping[str, str] | None = None,
    earlier: MemoryPlan | None = None,
) -> MemoryPlan:
    """The memory plan of a graph in schedule order with static types.

    Inputs are in the arena too, alive from before the first step; outputs stay alive to the end; constants are left out.
    `scratch(node)` gives the bytes of work buffers that live only while the node runs; they are named
    `scratch:<node name>:0`, `:1` and so on. `plan` is `plan_memory` (one arena) or `plan_regions` (whole buffers). A device that
    gives `continues` (see `share_storage`) uses the arrays of states where they are: they get no place in the arena. `storage`:
    what `share_storage` returned for these arguments. Where it is that of an `earlier` plan, for the same nodes in other sizes,
    the blocks are in the order of that one, unless they take much more memory so.
    """
    storage = share_storage(graph, in_place, continues) if storage is None else storage
    outside = {*graph.constants, *(graph.states if continues else ())}
    types, work = graph.types, {} if scratch is None else _buffers(graph, scratch)

    def values() -> Iterable[int]:
        return [_aligned(types[name].nbytes, alignment) for name in storage if name not in outside]

    if earlier is not None and storage is earlier.storage:
        roots = [block.name for block in (earlier.like or earlier).blocks if block.name in storage]
        known = {name: _aligned(size, alignment) for name, (_, size) in work.items()}
        known.update((name, _aligned(types[name].nbytes, alignment)) for name in roots)
        found = (earlier.regions_resized if plan is plan_regions else earlier.resized)(known, values)
        if found is not None:
            return found
    first = dict.fromkeys(graph.inputs, -1)
    last = dict(first)
    for step, names in enumerate((*((*node.reads, *node.writes) for node in graph.nodes), graph.outputs)):
        for root in map(storage.__getitem__, names):
            first.setdefault(root, step)
            last[root] = step
    blocks = [Lifetime(n, types[n].nbytes, first[n], end) for n, end in last.items() if n not in outside]
    blocks += [Lifetime(name, size, step, step) for name, (step, size) in work.items()]
    offsets, peak = plan(blocks, alignment)
    return MemoryPlan(storage, offsets, peak, tuple(blocks), values)


def _buffers(graph: Graph, scratch: Callable[[Node], Sequence[int]]) -> dict[str, tuple[int, int]]:
    """The work buffers by name, each with its step and bytes."""
    found = {}
    for step, node in enumerate(graph.nodes):
        for number, size in enumerate(scratch(node)):
            found[f"scratch:{node.name}:{number}"] = step, size
    return found
