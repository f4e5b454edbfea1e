"""Follows cached keys and values through the nodes that read them, from the cache to the sums of attention.

The axis of the keys is followed from each cache to the last product. A graph is accepted where the order of the keys cannot
change a result: all that is combined with them key by key is found, so that it can be brought into another order with them.
"""

from collections.abc import Sequence

import numpy as np

from dovetail.dataclass import dataclass, field
from dovetail.graph import Graph, Node
from dovetail_ops_onnx.attention import Attention_23

__all__ = ["ELEMENTWISE", "RESHAPING", "Cache", "Join", "KeyAxis", "NotAttention"]

PACKAGE = __name__.partition(".")[0]

_CHANGING_NOTHING = ("Cast", "Identity")
"""Operators between a mask and its Softmax: minus infinity stays what it is."""

RESHAPING = frozenset({"Cast", "Expand", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"})
ELEMENTWISE = frozenset(
    {"Abs", "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "IsNaN", "Less", "LessOrEqual", "Max", "Min", "Mul"}
    | {"Neg", "Not", "Or", "Sqrt", "Sub", "Tanh", "Where"}
)
_KEEPS_ZEROS = frozenset({*RESHAPING, "Transpose", "Mul", "Div", "Where"})
"""Operators after which a key whose weight was 0 still has the weight 0. A Where takes zeros in place of NaN."""

_MASK = 3
"""The input of Attention."""


class NotAttention(Exception):
    """The reason why caches cannot be states."""


@dataclass(frozen=True)
class Cache:
    """An input, the Concat that adds new rows to it along `axis`, and its result."""

    past: str
    node: Node
    axis: int

    @property
    def new(self) -> str:
        """The rows that are added."""
        return self.node.inputs[1]

    @property
    def present(self) -> str:
        """The result."""
        return self.node.outputs[0]


@dataclass(frozen=True)
class Join:
    """The input of a node that is combined with scores key by key. `hidden`: minus infinity may be added to it."""

    node: str
    index: int
    hidden: bool = False


@dataclass
class KeyAxis:
    """The readers of the caches of a typed graph in schedule order; caches are `total` long with the new rows.

    `texts` are those of a batch whose keys may have different orders, 1 where all have the same.
    `joins` are the operands to bring into the order of the keys, `unmasked` the names of Softmax and Attention nodes whose
    scores have no operand to which a mask could be added. Raises `NotAttention`.
    """

    graph: Graph
    caches: Sequence[Cache]
    total: int
    texts: int
    joins: list[Join] = field(default_factory=list)
    unmasked: list[str] = field(default_factory=list)
    _axes: dict[str, int] = field(default_factory=dict)
    _weights: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        by_node = {cache.node.name: cache for cache in self.caches}
        pasts = {cache.past for cache in self.caches}
        for node in self.graph.nodes:
            cache = by_node.get(node.name)
            if cache is not None:
                self._axes[cache.present] = cache.axis
                continue
            if pasts.intersection(node.reads):
                raise NotAttention(f"node {node} reads a cache without its new rows")
            if not self._axes.keys().isdisjoint(node.reads):
                self._follow(node)
        written = {cache.present for cache in self.caches}
        if lost := [name for name in self.graph.outputs if name in self._axes and name not in written]:
            raise NotAttention(f"the output {lost[0]!r} has a value for each key")

    def _follow(self, node: Node) -> None:
        key = node.op.key if node.op.package == PACKAGE else ""
        if key == "MatMul":
            found = self._product(node)
        elif key == "Softmax":
            found = self._softmax(node)
        elif key == "Attention":
            self._attention(node)
            return
        elif key == "Transpose" and node.inputs[0] in self._axes:
            perm = getattr(node.op, "perm", None) or tuple(reversed(range(self._rank(node.inputs[0]))))
            found = perm.index(self._axes[node.inputs[0]])
        elif key in RESHAPING and node.inputs[0] in self._axes:
            found = self._reshaped(node)
        elif key in ELEMENTWISE:
            found = self._joined(node)
        else:
            raise NotAttention(f"node {node} reads cached keys or values; accepted: products, masks and a Softmax")
        if found is None:
            return
        self._axes[node.outputs[0]] = found
        if key == "Softmax" or (key in _KEEPS_ZEROS and self._weights.intersection(node.inputs)):
            self._weights.add(node.outputs[0])

    def _rank(self, name: str) -> int:
        return self.graph.types[name].rank

    def _reshaped(self, node: Node) -> int:
        """The axis of the same elements in the result."""
        axis, before = self._axes[node.inputs[0]], self.graph.types[node.inputs[0]].dims
        after = self.graph.types[node.outputs[0]].dims
        if node.op.key == "Expand":
            at = axis + len(after) - len(before)
            return self._checked(node, at, after[at] == self.total)
        ahead = int(np.prod(before[:axis], dtype=np.int64))
        places = [at for at, size in enumerate(after) if size == self.total and int(np.prod(after[:at], dtype=np.int64)) == ahead]
        return self._checked(node, places[0] if places else 0, bool(places))

    def _checked(self, node: Node, axis: int, fits: bool) -> int:
        if not fits:
            raise NotAttention(f"node {node} mixes cached keys with other dimensions")
        return axis

    def _joined(self, node: Node) -> int:
        """The axis in the result of an elementwise operator; its other operands with a value for each key are joins."""
        rank = self._rank(node.outputs[0])
        places = {self._axes[name] + rank - self._rank(name) for name in node.inputs if name in self._axes}
        if len(places) > 1:
            raise NotAttention(f"node {node} combines different axes of cached keys")
        (axis,) = places
        for index, name in enumerate(node.inputs):
            dims = self.graph.types[name].dims
            at = axis - rank + len(dims)
            if name not in self._axes and at >= 0 and dims[at] == self.total:
                self._join(node, index, axis == rank - 1)
        return axis

    def _join(self, node: Node, index: int, is_last: bool, hidden: bool = False) -> None:
        dims, batch = self.graph.types[node.inputs[index]].dims, self.texts
        if not is_last or (batch > 1 and len(dims) == 4 and dims[0] not in (1, batch)) or (batch > 1 and len(dims) > 4):
            raise NotAttention(f"node {node} takes {self.graph.types[node.inputs[index]]} for each key; accepted: a mask")
        if batch > 1 and self._rank(node.outputs[0]) != 4:
            raise NotAttention(f"node {node} has the batch in the dimension of the heads; accepted: one text at once")
        self.joins.append(Join(node.name, index, hidden))

    def _product(self, node: Node) -> int | None:
        """Scores from queries and keys; or the end, the sum of the values by their weights."""
        left, right = node.inputs
        is_last = {name: self._axes[name] == self._rank(name) - 1 for name in (left, right) if name in self._axes}
        if left not in is_last and is_last[right] and self._rank(right) > 1:
            return self._rank(node.outputs[0]) - 1
        summed = is_last.get(left, False) and right in self._axes and self._axes[right] == self._rank(right) - 2
        if not summed:
            raise NotAttention(f"node {node} multiplies cached keys or values in another way than attention")
        if left not in self._weights:
            raise NotAttention(f"node {node} sums cached values by other weights than those of a Softmax")
        return None

    def _softmax(self, node: Node) -> int:
        name = node.inputs[0]
        axis, rank = self._axes[name], self._rank(name)
        if axis != rank - 1 or getattr(node.op, "axis", None) not in (-1, rank - 1):
            raise NotAttention(f"node {node} is along another axis than the cached keys")
        if self.texts > 1 and rank != 4:
            raise NotAttention(f"node {node} has the batch in the dimension of the heads; accepted: one text at once")
        before = self.graph.producers.get(name)
        while before is not None and before.op.key in _CHANGING_NOTHING:
            before = self.graph.producers.get(before.inputs[0])
        self._mask(node, before)
        return axis

    def _mask(self, node: Node, before: Node | None) -> None:
        """Let the mask that is added last hide what is not in use; without one the scores get a mask."""
        masks = [join for join in self.joins if before is not None and join.node == before.name and before.op.key == "Add"]
        if len(masks) != 1:
            self.unmasked.append(node.name)
            return
        self.joins[self.joins.index(masks[0])] = Join(masks[0].node, masks[0].index, True)

    def _attention(self, node: Node) -> None:
        """The end of what is cached: an Attention of the model itself."""
        op, given = node.op, [*node.inputs, *[""] * 7]
        plain = isinstance(op, Attention_23) and not op.is_causal and op.window == (-1, -1) and not any(given[4:7])
        if not plain or any(node.outputs[1:]) or given[0] in self._axes:
            raise NotAttention(f"node {node} is causal, or has lengths, caches or scores; accepted: Q, K, V and a mask")
        if any(self._axes.get(name) != 2 or self._rank(name) != 4 for name in given[1:3]):
            raise NotAttention(f"node {node} has other keys or values than cached ones [batch, heads, length, size]")
        mask = given[_MASK]
        if not mask:
            self.unmasked.append(node.name)
        elif mask in self._axes or self.graph.types[mask].dims[-1:] != (self.total,) or not self.graph.types[mask].dtype.is_float:
            raise NotAttention(f"node {node} has the mask {self.graph.types[mask]}; accepted: a float for each key")
        else:
            self._join(node, _MASK, True, hidden=True)
