"""Caches that grow by Concat, declared as states: they get one size, and new rows are written where they belong.

The graph sees its caches as an exporter's generator gives them to it: as long as possible, the rows in use at their end. In
memory these come first. What is combined with keys one by one, the masks, is turned from one order into the other.
"""

import dataclasses
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dovetail.errors import DovetailError, UsageError
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.op import Operator
from dovetail.passes import chosen_branch, drop_dead_nodes, fold_constants, inlined, rename_reads, schedule
from dovetail_ops_onnx.add import Add
from dovetail_ops_onnx.cast import Cast
from dovetail_ops_onnx.concat import Concat
from dovetail_ops_onnx.expand import Expand
from dovetail_ops_onnx.gather import Gather
from dovetail_ops_onnx.gather_elements import GatherElements
from dovetail_ops_onnx.identity import Identity
from dovetail_ops_onnx.less import Less
from dovetail_ops_onnx.max import Max
from dovetail_ops_onnx.mod import Mod
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.passes._key_axis import Cache, KeyAxis, NotAttention
from dovetail_ops_onnx.passes._lengths import Lengths
from dovetail_ops_onnx.reduce_sum import ReduceSum
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.shape import Shape
from dovetail_ops_onnx.slice import Slice
from dovetail_ops_onnx.sub import Sub
from dovetail_ops_onnx.tensor_scatter import TensorScatter
from dovetail_ops_onnx.unsqueeze import Unsqueeze
from dovetail_ops_onnx.where import Where

__all__ = ["hold_caches"]

_MASK = "attention_mask"
"""The input that counts the tokens of each text, as exporters of decoders name it."""

_LENGTH = "cache_length"
"""An input that no node reads, in place of it: the tokens of each text, new ones included, as one number [1]."""

_TOKENS = ("input_ids", "decoder_input_ids", "inputs_embeds", "decoder_inputs_embeds")
"""The names of the input with the new tokens: [batch, tokens] or [batch, tokens, width]."""

_HALVES = (DType.FLOAT16, DType.BFLOAT16)

_NEW, _SHORT = 2, 7
"""New rows, and the length of the caches for which the graph is examined, besides the longest that it takes."""


def hold_caches(graph: Graph) -> Graph:
    """The graph with states that a Concat continues written in place, where nothing else than attention reads them.

    The states have their final length, and the input `attention_mask` [batch, that length] has as many ones in front as its text
    has tokens, new ones included. With an input `cache_length` [1], the number for all texts, there may be no mask, or one of the
    final length that is as the graph takes it, its elements at the end. What the graph computes from the length of its
    caches is computed in each run, for texts of one length. Raises `UsageError` with the reason where a result would change.
    """
    graph = _without_branches(graph) if any(node.op.subgraphs for node in graph.nodes) else graph
    graph = _without_copies(graph)
    caches = [found for name, index in graph.states.items() if (found := _cache(graph, name, index)) is not None]
    if not caches:
        return graph
    try:
        return _Held(graph, caches).graph()
    except NotAttention as reason:
        raise UsageError(
            f"{caches[0].past!r} cannot be a state: {reason}",
            hint="leave the property STATE out: the model then takes its caches as inputs, with a new plan for each length",
        ) from reason


def _without_branches(graph: Graph) -> Graph:
    """The graph with the branches that constants choose in the place of their nodes."""
    nodes, constants, types, waiting = list[Node](), dict(graph.constants), dict(graph.types), deque(graph.nodes)
    taken = {*types, *graph.producers, *(node.name for node in graph.nodes)}
    while waiting:
        node = waiting.popleft()
        branch = chosen_branch(node, constants)
        if branch is None:
            nodes.append(node)
            continue
        body = inlined(node, branch, taken)
        constants.update(body.constants)
        types.update(body.types)
        taken |= {*types, *body.producers, *(inner.name for inner in body.nodes)}
        waiting.extendleft(reversed(body.nodes))
    return graph.replace(nodes=tuple(nodes), constants=constants, types=types)


def _without_copies(graph: Graph) -> Graph:
    """The graph whose Concats read states and write them, with no Identity or Cast between.

    Concats in half precision of states in float32 join these in float32, of which half precision is taken again.
    """
    before = graph
    for name, index in graph.states.items():
        written, kind, copies = graph.outputs[index], graph.types[name].dtype, list[Node]()
        node = graph.producers.get(written)
        while node is not None and (isinstance(node.op, Identity) or _casts(node, kind)):
            copies.append(node)
            node = graph.producers.get(node.inputs[0])
        if node is None or not isinstance(node.op, Concat) or len(node.inputs) != 2:
            continue
        if copies and {*graph.outputs}.isdisjoint(copy.inputs[0] for copy in copies):
            graph = _joined_in_state(graph, name, written, node, copies)
    return graph if graph is before else drop_dead_nodes(schedule(graph))


def _joined_in_state(graph: Graph, name: str, written: str, node: Node, copies: Sequence[Node]) -> Graph:
    """The graph whose Concat `node` writes a state itself, if it reads that; `copies` lead to it now, the last one first."""
    kind, before = graph.types[name].dtype, graph.producers.get(node.inputs[0])
    renamed = {copy.inputs[0]: written for copy in copies}
    left, shapes = {copy.name for copy in copies}, set[str]()
    if node.inputs[0] == name:
        joined = [dataclasses.replace(node, outputs=(written,))]
    elif before is not None and before.inputs[0] == name and kind is DType.FLOAT32 and any(_casts(before, t) for t in _HALVES):
        joined = _widened(node, name, written, kind, before)
        del renamed[node.outputs[0]]
        shapes = {one.name for one in graph.consumers[before.outputs[0]] if isinstance(one.op, Shape)}
    else:
        return graph
    nodes = list[Node]()
    for one in graph.nodes:
        if one.name in shapes:
            nodes.append(dataclasses.replace(one, inputs=(name,)))
        elif one.name not in left:
            nodes.extend(joined if one.name == node.name else [rename_reads(one, renamed)])
    return graph.replace(nodes=tuple(nodes))


def _casts(node: Node, kind: DType) -> bool:
    return isinstance(node.op, Cast) and node.op.to is kind


def _widened(node: Node, past: str, written: str, kind: DType, before: Node) -> list[Node]:
    """A Concat of rows in a wider type, and what it was in the type to which `before` casts the past."""
    rows = f"{node.name}/rows"
    return [
        Node(rows, Cast(to=kind), (node.inputs[1],), (rows,), (), (node.name,)),
        dataclasses.replace(node, inputs=(past, rows), outputs=(written,)),
        Node(f"{node.name}/narrow", before.op, (written,), node.outputs, (), (node.name,)),
    ]


def _cache(graph: Graph, name: str, index: int) -> Cache | None:
    """The cache in a state that a Concat of it with another value continues."""
    node = graph.producers.get(graph.outputs[index])
    past = graph.types[name]
    if node is None or not isinstance(node.op, Concat) or len(node.inputs) != 2 or node.inputs[0] != name:
        return None
    return Cache(name, node, node.op.axis % past.rank) if past.is_static and past.rank > 1 else None


class _Held:
    """Rewrites one graph."""

    def __init__(self, graph: Graph, caches: Sequence[Cache]) -> None:
        self._graph, self._caches = graph, caches
        self._fixed = next((name for name in _TOKENS if name in graph.inputs and self._fixed_tokens(name)), "")
        self._new = self._fixed_tokens(self._fixed) or _NEW
        self._short = max(_SHORT, self._new + 2)
        self._check_inputs()
        self._batch, self._room = (graph.types[caches[0].past].dims[axis] for axis in (0, caches[0].axis))
        self._scope, taken = "caches", (*graph.types, *graph.producers, *(node.name for node in graph.nodes))
        while any(name.startswith(f"{self._scope}/") for name in taken):
            self._scope += "_"
        self._nodes: list[Node] = []
        self._constants: dict[str, Any] = {}
        self._seen: dict[str, str] = {}
        self._starts = self._firsts = self._ends = self._used = self._order = ""
        self._turned: dict[tuple[str, bool], str] = {}

    def _check_inputs(self) -> None:
        graph, first = self._graph, self._caches[0]
        room = graph.types[first.past].dims[first.axis]
        for cache in self._caches:
            dims = graph.types[cache.past].dims
            if not cache.axis or dims[cache.axis] != room or dims[0] != graph.types[first.past].dims[0]:
                raise NotAttention(f"{cache.past!r} is {graph.types[cache.past]}, {first.past!r} {graph.types[first.past]}")
        if room < self._new:
            raise NotAttention(f"they have {room} rows; accepted: {self._new} or more")
        mask = graph.types.get(_MASK) if _MASK in graph.inputs else None
        is_counted = _LENGTH in graph.inputs and _LENGTH not in graph.consumers
        size = mask.shape[1] if mask is not None and mask.shape is not None and len(mask.shape) == 2 else 0
        if not is_counted and not size and size is not None:
            raise NotAttention(f"the input {_MASK!r} [batch, length] is missing, which counts the tokens of each text")
        if not is_counted and isinstance(size, int) and size != room:
            raise NotAttention(f"the input {_MASK!r} is {mask}; accepted: [batch, {room}], as long as the caches")
        if any(node.op.subgraphs for node in graph.nodes):
            raise NotAttention("the model has sub-graphs")
        self._is_counted, self._has_mask = is_counted, not is_counted or size == room
        self._texts = 1 if is_counted else graph.types[first.past].dims[0]

    def _fixed_tokens(self, name: str) -> int:
        """How many tokens each run has, where the input says so, as in decoders that only take the next one; else 0."""
        size = (*(self._graph.types[name].shape or ()), None, None)[1] if name else None
        return size if isinstance(size, int) else 0

    # --- what the graph does with its caches -------------------------------------------------------------------------

    def _examined(self, total: int, tokens: str = "") -> Graph:
        """The graph typed for caches that are `total` long with their new rows, of which the input `tokens` has one more."""
        types: dict[str, TensorType] = {name: t for name, t in self._graph.types.items() if name in self._graph.constants}
        axes, before = {cache.past: cache.axis for cache in self._caches}, total - self._new - bool(tokens)
        for name in self._graph.inputs:
            declared = self._graph.types[name]
            shape = enumerate(declared.shape or ())
            sizes = [size if isinstance(size, int) else self._new if at else self._batch for at, size in shape]
            if name in axes:
                sizes[axes[name]] = before
            elif name == _MASK and self._has_mask:
                sizes = [self._batch, total]
            elif tokens and isinstance(size := (self._graph.types[tokens].shape or ())[1], str):
                sizes = [self._new + 1 if one == size else known for one, known in zip(declared.shape or (), sizes, strict=True)]
            types[name] = declared.with_shape(tuple(sizes))
        try:
            return fold_constants(self._graph.replace(types=types, states={}))
        except DovetailError as error:
            raise NotAttention(f"for a cache of {before} rows, {error.message}") from error

    def _samples(self) -> Mapping[int, Graph]:
        """The graph typed for short caches, and for the longest that it takes with those that are a row shorter."""
        short, longest = self._examined(self._short), max(self._room, self._short + 2)
        while True:
            try:
                return {self._short: short, longest - 1: self._examined(longest - 1), longest: self._examined(longest)}
            except NotAttention:  # such as for more positions than the model has
                if longest == self._short + 2:
                    raise
                longest = max(longest // 2, self._short + 2)

    def graph(self) -> Graph:
        """The rewritten graph."""
        samples = self._samples()
        self._is_examined = self._room <= max(samples)
        first = samples[self._short]
        found = KeyAxis(first, self._caches, self._short, self._texts)
        lengths = Lengths(self._graph, samples, [cache.new for cache in self._caches], found.joins)
        self._define_orders(self._tokens() if lengths.wanted or self._needs_order(self._caches[0].new) else "")
        self._define_lengths(lengths)
        changes: dict[str, dict[int, str]] = {}
        for join in found.joins:
            name = next(node for node in first.nodes if node.name == join.node).inputs[join.index]
            changes.setdefault(join.node, {})[join.index] = self._in_memory(name, first.types[name], join.hidden)
        outer = [self._rewritten(node, changes.get(node.name, {})) for node in self._graph.nodes]
        outer = [self._masked(node, first) if node.name in found.unmasked else node for node in outer]
        nodes = (*self._nodes, *outer)
        constants = {**self._graph.constants, **self._constants}
        known = {name: TensorType.of(array, known=True) for name, array in self._constants.items()}
        kept = {name: t for name, t in self._graph.types.items() if name in self._graph.inputs or name in self._graph.constants}
        return drop_dead_nodes(schedule(self._graph.replace(nodes=nodes, constants=constants, types={**kept, **known})))

    def _define_orders(self, tokens: str) -> None:
        """Where new rows begin and end, which rows are in use, and the way from one order of rows to the other, as nodes.

        The input `tokens` has the number of new rows; without it they are counted where they are added.
        """
        first = self._caches[0]
        counts = self._node(Max(), self._tokens_so_far(), self._ints(1))
        places = Shape(start=1, end=2) if tokens else Shape(start=first.axis, end=first.axis + 1)
        added = self._node(places, tokens or first.new)
        # A prompt may be filled up behind its tokens to more than the text has.
        self._starts = self._node(Max(), self._node(Sub(), counts, added), self._ints(0))
        self._firsts = self._node(Expand(), self._starts, self._ints(self._batch))
        self._ends = self._node(Add(), self._starts, added)
        before = self._node(Sub(), self._ints(self._room), added)
        rows = self._constant(np.arange(self._room)[None])
        shift = self._node(Unsqueeze(), self._node(Sub(), before, self._starts), self._ints(1))
        self._used = self._node(Less(), rows, self._node(Unsqueeze(), counts, self._ints(1)))
        self._order = self._node(Mod(), self._node(Add(), rows, shift), self._ints(self._room))
        if not self._is_counted:
            seen = self._node(Mod(), self._node(Sub(), rows, shift), self._ints(self._room))
            self._seen[_MASK] = self._node(GatherElements(axis=1), _MASK, seen)
        for cache in self._caches:
            if len(self._graph.consumers[cache.past]) > 1:
                view = self._node(Slice(), cache.past, self._ints(0), before, self._ints(cache.axis))
                self._seen[cache.past] = view

    def _needs_order(self, rows: str) -> bool:
        """Whether new rows are computed from the mask or a past, such as by positions: the order of these must not need them."""
        waiting, seen = [rows], set[str]()
        ordered = {*(cache.past for cache in self._caches), *(() if self._is_counted else (_MASK,))}
        while waiting:
            name = waiting.pop()
            if name in ordered:
                return True
            if name not in seen and (node := self._graph.producers.get(name)) is not None:
                waiting.extend(node.reads)
            seen.add(name)
        return False

    def _tokens(self) -> str:
        """The input with as many tokens as rows are added. Raises `NotAttention` where there is none."""
        total = self._short + 1
        for name in (self._fixed,) if self._fixed else _TOKENS:
            if name in self._graph.inputs and len(self._graph.types[name].shape or ()) > 1:
                types = self._examined(total, "" if self._fixed else name).types
                if all(types[cache.present].dims[cache.axis] == total for cache in self._caches):
                    return name
        raise NotAttention("it is not known which input has the new tokens")

    def _tokens_so_far(self) -> str:
        """How many tokens each text has: [texts]."""
        if self._is_counted:
            return _LENGTH
        return self._node(ReduceSum(keepdims=False), self._node(Cast(to=DType.INT64), _MASK), self._ints(1))

    def _define_lengths(self, lengths: Lengths) -> None:
        """Let nodes compute the values that depend on the length in use, and one node those that no others compute."""
        done = self._counted(lengths) if self._texts == 1 else ()
        wanted = [name for name in lengths.wanted if name not in done]
        if not wanted:
            return
        op, given = lengths.computed(self._room, wanted)
        names = {name: f"{self._scope}/{name}" for name in wanted}
        inputs, origins = (self._ends, *given), (self._caches[0].node.name,)
        self._nodes.append(Node(f"{self._scope}/by_length", op, inputs, tuple(names.values()), (), origins))
        self._seen |= names

    def _counted(self, lengths: Lengths) -> Sequence[str]:
        """Computes what positions decide, by the nodes of the graph from its positions for full caches, less the unused rows."""
        steps, nodes, found = lengths.counted()
        if not found:
            return ()
        unused = self._node(Reshape(), self._node(Sub(), self._ends, self._ints(self._room)), self._ints())
        names = dict[str, str]()
        for name, step in steps.items():
            change = self._node(Cast(to=TensorType.of(step).dtype), unused)
            names[name] = self._node(Add(), name, change if step == 1 else self._node(Mul(), change, self._constant(step)))
        for node in nodes:
            names |= {name: f"{self._scope}/{name}" for name in node.writes}
            renamed = rename_reads(node, names)
            outputs, origins = tuple(names.get(name, "") for name in node.outputs), (self._caches[0].node.name,)
            copy = dataclasses.replace(renamed, name=f"{self._scope}/{node.name}", outputs=outputs, origins=origins)
            self._nodes.append(copy)
        self._seen |= {name: names[name] for name in found}
        return found

    # --- nodes ---------------------------------------------------------------------------------------------------------

    def _rewritten(self, node: Node, changes: Mapping[int, str]) -> Node:
        cache = next((cache for cache in self._caches if cache.node is node), None)
        if cache is not None:
            scattered = (cache.past, cache.new, self._firsts)
            return dataclasses.replace(node, op=TensorScatter(axis=cache.axis), inputs=scattered)
        inputs = tuple(changes.get(index, name) for index, name in enumerate(node.inputs))
        return rename_reads(dataclasses.replace(node, inputs=inputs), self._seen)

    def _masked(self, node: Node, typed: Graph) -> Node:
        """A Softmax or Attention with a mask of its own for what is not in use."""
        if node.op.key == "Attention":
            filled = (*node.inputs[:3], self._hiding(typed.types[node.inputs[0]].dtype, 4), *node.inputs[4:])
            return dataclasses.replace(node, inputs=filled)
        scores = node.inputs[0]
        hiding = self._hiding(typed.types[scores].dtype, typed.types[scores].rank)
        return dataclasses.replace(node, inputs=(self._node(Add(), scores, hiding),))

    def _in_memory(self, name: str, found: TensorType, hidden: bool) -> str:
        """A mask with a value for each key, in the order of the keys in memory. `hidden` leaves out what is not in use."""
        if (name, hidden) in self._turned:
            return self._turned[name, hidden]
        rank = found.rank
        value = self._seen.get(name, name)
        if not self._is_examined:  # a constant has no values for so many keys: that is an error when the Expand is typed
            value = self._node(Expand(), value, self._ints(self._room))
        if self._texts == 1:
            turned = self._node(Gather(axis=rank - 1), value, self._node(Reshape(), self._order, self._ints(-1)))
        else:
            if rank < 4:
                value, rank = self._node(Unsqueeze(), value, self._ints(*range(4 - rank))), 4
            each = self._node(Expand(), value, self._ints(self._texts, 1, 1, 1))
            order = self._node(Expand(), self._node(Unsqueeze(), self._order, self._ints(1, 2)), self._node(Shape(), each))
            turned = self._node(GatherElements(axis=3), each, order)
        if hidden:
            turned = self._node(Add(), turned, self._hiding(found.dtype, rank))
        self._turned[name, hidden] = turned
        return turned

    def _hiding(self, dtype: DType, rank: int) -> str:
        """0 for keys in use, minus infinity for others: [texts, 1, 1, room], or [room] for one text."""
        key = f"hiding {dtype}", rank == 4
        if key not in self._turned:
            zero, hidden = (self._constant(np.asarray(x, dtype.numpy)) for x in (0.0, -np.inf))
            bias = self._node(Where(), self._used, zero, hidden)
            shape = (self._texts, 1, 1, self._room) if rank == 4 else (self._room,)
            self._turned[key] = self._node(Reshape(), bias, self._ints(*shape))
        return self._turned[key]

    def _node(self, op: Operator, *inputs: str) -> str:
        name = f"{self._scope}/{len(self._nodes)}_{op.stem}"
        self._nodes.append(Node(name, op, inputs, (name,), (), (self._caches[0].node.name,)))
        return name

    def _constant(self, value: Any) -> str:
        name = f"{self._scope}/constant_{len(self._constants)}"
        self._constants[name] = as_constant(np.asarray(value))
        return name

    def _ints(self, *values: int) -> str:
        return self._constant(np.array(values, np.int64))
