"""Constants of a folded graph that depend on the length of its caches, and how they are computed for each length.

The graph takes its caches as if they were as long as possible and their first rows were padding that the masks hide. That is
right for masks and biases by distance, which are alike as seen from their ends, and wrong for positions, which are computed
for the length in use instead. The graph is folded for caches of several lengths to see which is which.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.graph import Graph, Node
from dovetail.locks import cached_property
from dovetail.passes import schedule
from dovetail_ops_onnx.by_length import ByLength
from dovetail_ops_onnx.passes._key_axis import ELEMENTWISE, RESHAPING, Join, NotAttention

__all__ = ["Lengths"]

_SHAPE_INPUTS = {"ConstantOfShape": (0,), "Expand": (1,), "Range": (1,), "Reshape": (1,), "Slice": (2,), "Tile": (1,)}
"""Inputs that decide how long a result is, and not what its elements are."""


@dataclass
class Lengths:
    """The values that `graph` computes from the length of its caches, by the same graph folded for several lengths.

    `samples` maps total lengths to folded graphs, the shortest first; `news` are the rows that are added to caches, `joins` the
    operands with a value for each key. `wanted` are the constants that have to be computed for each length, with the axes that
    are as long as the caches. Raises `NotAttention` where others would have to be.
    """

    graph: Graph
    samples: Mapping[int, Graph]
    news: Sequence[str]
    joins: Sequence[Join]
    wanted: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        decisive, kept, masks = self._decisive(), list[str](), list[str]()
        for node in self._first.nodes:
            for index, name in self._contents(node):
                if name not in self._first.constants or not self._differs(name):
                    continue
                if self._starts_among_keys(node, index):
                    kept.append(name)
                    continue
                is_decisive = not decisive.isdisjoint(node.writes) and (node.name, index) not in self._places
                if self._is_uniform(name) if is_decisive else self._is_relative(name):
                    continue
                if is_decisive and self._grown(name):
                    raise NotAttention(f"node {node} takes a number for each cached key, computed from the length of the caches")
                if is_decisive or self._is_for_keys(name):
                    self.wanted[name] = self._grown(name)
                    masks += [] if is_decisive else [name]
                else:  # an index of keys, which counts the rows that are padding
                    kept.append(name)
        masks += [name for name in kept if name in self.wanted]
        if kept and masks:
            raise NotAttention(f"{masks[0]!r} counts cached keys from the first one, {kept[0]!r} from where there is room")
        for name in self._first.outputs:
            if name in self._first.constants and self._differs(name):
                raise NotAttention(f"the output {name!r} is computed from the length of the caches")

    @property
    def _first(self) -> Graph:
        return next(iter(self.samples.values()))

    @cached_property
    def _places(self) -> frozenset[tuple[str, int]]:
        return frozenset((join.node, join.index) for join in self.joins)

    def _contents(self, node: Node) -> Iterator[tuple[int, str]]:
        """The inputs on whose elements those of the outputs depend."""
        lengths = _SHAPE_INPUTS.get(node.op.key, ())
        return ((index, name) for index, name in enumerate(node.inputs) if name and index not in lengths)

    def _decisive(self) -> set[str]:
        """The values on which outputs and new rows of caches depend by more than masks."""
        found = {*self._first.outputs, *self.news}
        for node in reversed(self._first.nodes):
            if not found.isdisjoint(node.writes):
                found.update(name for index, name in self._contents(node) if (node.name, index) not in self._places)
        return found

    def _pairs(self) -> Iterator[tuple[int, Graph, Graph]]:
        for one, other in pairwise(self.samples):
            yield other - one, self.samples[one], self.samples[other]

    def _differs(self, name: str) -> bool:
        """Whether a constant depends on the length."""
        return any(
            name not in other.constants or not _equal(one.constants[name], other.constants[name])
            for _, one, other in self._pairs()
        )

    def _starts_among_keys(self, node: Node, index: int) -> bool:
        """Whether an input is the start of a Slice of what the mask has for each cached key, in the places of these keys."""
        if node.op.key != "Slice" or index != 1 or (grown := self._grown(node.inputs[0])) == ():
            return False
        starts = [sample.constants.get(node.inputs[1]) for sample in self.samples.values()]
        axes = self._first.constants.get(node.inputs[3]) if len(node.inputs) > 3 and node.inputs[3] else np.arange(len(grown))
        if axes is None or any(start is None for start in starts):
            return False
        rank = self._first.types[node.inputs[0]].rank
        return set((axes % rank).tolist()) <= set(grown)

    def _grown(self, name: str) -> tuple[int, ...]:
        """The axes of a value that are longer by as much as the caches."""
        found = set()
        for more, one, other in self._pairs():
            sizes = enumerate(zip(one.types[name].dims, other.types[name].dims, strict=True))
            found.add(tuple(axis for axis, (size, longer) in sizes if size != longer))
            if any(b - a not in (0, more) for a, b in zip(one.types[name].dims, other.types[name].dims, strict=True)):
                raise NotAttention(f"the size of {name!r} does not grow with the caches row by row")
        if len(found) != 1:
            raise NotAttention(f"the size of {name!r} grows with some lengths of the caches")
        return found.pop()

    def _is_relative(self, name: str) -> bool:
        """Whether a constant for shorter caches is the end of that for longer ones."""
        return self._is_part(name, lambda size, longer: slice(longer - size, None))

    def _is_uniform(self, name: str) -> bool:
        """Whether a constant only gets longer: it is the end and the beginning of that for longer caches."""
        return self._is_relative(name) and self._is_part(name, lambda size, longer: slice(size))

    def _is_part(self, name: str, place: Callable[[int, int], slice]) -> bool:
        pairs = ((one.constants[name], other.constants[name]) for _, one, other in self._pairs())
        return all(_equal(short, long[tuple(map(place, short.shape, long.shape))]) for short, long in pairs)

    def _is_for_keys(self, name: str) -> bool:
        """Whether a value is only combined with scores, key by key: what is in front of the keys in use is hidden then."""
        if name in self._first.outputs:
            return False
        for node in self._first.consumers.get(name, ()):
            places = [index for index, read in enumerate(node.inputs) if read == name]
            if all((node.name, index) in self._places for index in places):
                continue
            if node.op.key not in ELEMENTWISE | RESHAPING or not all(map(self._is_for_keys, node.writes)):
                return False
        return True

    # --- computing -----------------------------------------------------------------------------------------------------

    def counted(self) -> tuple[Mapping[str, NDArray[Any]], tuple[Node, ...], Sequence[str]]:
        """Integers all of which increase by one step with each token, such as positions, with that step; the nodes that compute
        other values from them, none as long as the caches; and the values of `wanted` that are among all these."""
        steps: dict[str, NDArray[Any]] = {}
        nodes: dict[str, Node] = {}
        found = []
        for name in self.wanted:
            own_steps, own_nodes = dict(steps), dict(nodes)
            if self._counts(name, own_steps, own_nodes):
                steps, nodes = own_steps, own_nodes
                found.append(name)
        return steps, self._in_order(nodes), found

    def _counts(self, name: str, steps: dict[str, NDArray[Any]], nodes: dict[str, Node]) -> bool:
        """Note how a constant is computed from numbers that increase with the length, if it is."""
        node = self.graph.producers.get(name)
        if name in steps or (node is not None and node.name in nodes) or not self._differs(name):
            return True
        if self._grown(name):
            return False
        step = self._step(name)
        if step is not None:
            steps[name] = step
            return True
        if node is None or not self._is_computable(node):
            return False
        nodes[node.name] = node
        return all(self._counts(read, steps, nodes) for read in node.reads)

    def _step(self, name: str) -> NDArray[Any] | None:
        """By how much all elements of a constant increase with each token; None where that is not one integer."""
        found = list[NDArray[Any]]()
        for more, one, other in self._pairs():
            if one.constants[name].dtype.kind != "i":
                return None
            changes = np.unique(other.constants[name] - one.constants[name])
            if changes.size != 1 or changes[0] % more:
                return None
            found.append(changes[0] // more)
        return np.asarray(found[0]) if all(step == found[0] for step in found) else None

    def computed(self, room: int, wanted: Sequence[str]) -> tuple[ByLength, tuple[str, ...]]:
        """An operator that computes these values, and those that it takes besides the lengths."""
        nodes: dict[str, Node] = {}
        given: dict[str, tuple[int, ...]] = {}
        for name in wanted:
            self._trace(name, nodes, given)
        grown = {name: places for name, places in given.items() if places}
        if not grown:
            raise NotAttention(f"it is not known how {wanted[0]!r} depends on the length of the caches")
        results = {name: self.wanted[name] for name in wanted}
        return ByLength(self._in_order(nodes), tuple(given), grown, results, room), tuple(given)

    def _in_order(self, nodes: Mapping[str, Node]) -> tuple[Node, ...]:
        return tuple(node for node in schedule(self.graph).nodes if node.name in nodes)

    def _is_computable(self, node: Node) -> bool:
        """Whether a node computes from constants alone, each time the same."""
        is_known = all(read in self._first.constants for read in node.reads)
        return is_known and node.op.has_reference() and not node.op.subgraphs and not node.op.is_random

    def _trace(self, name: str, nodes: dict[str, Node], given: dict[str, tuple[int, ...]]) -> None:
        """Note the node that computes a constant and what it reads, as far as that depends on the length."""
        node = self.graph.producers.get(name)
        if name in given or (node is not None and node.name in nodes):
            return
        if not self._differs(name):
            given[name] = ()
            return
        assert node is not None  # constants of the model are the same for all lengths
        if node.op.key == "Shape" and node.inputs[0] not in self._first.constants:
            given[name] = self._grown_sizes(name)
            return
        if not self._is_computable(node):
            raise NotAttention(f"node {node} computes from the length of the caches in a way that is not known")
        nodes[node.name] = node
        for read in node.reads:
            self._trace(read, nodes, given)

    def _grown_sizes(self, name: str) -> tuple[int, ...]:
        """The sizes of a shape that grow with the caches."""
        found = set()
        for more, one, other in self._pairs():
            change = other.constants[name] - one.constants[name]
            if not np.isin(change, (0, more)).all():
                raise NotAttention(f"the shape {name!r} does not grow with the caches row by row")
            found.add(tuple(np.flatnonzero(change).tolist()))
        if len(found) != 1:
            raise NotAttention(f"the shape {name!r} grows with some lengths of the caches")
        return found.pop()


def _equal(one: NDArray[Any], other: NDArray[Any]) -> bool:
    return one.shape == other.shape and np.array_equal(one, other, equal_nan=one.dtype.kind in "fc")
