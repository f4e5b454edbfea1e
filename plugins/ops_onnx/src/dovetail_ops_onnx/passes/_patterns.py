"""Patterns over graphs, and the rewriting that the recognising passes share.

A pattern describes how a value came about, from its last operator backwards. It matches standard operators only, by their
definition and not by name alone. A rule turns a match into one node; it applies where nothing inside of the match is read by
anybody else or is an output of the graph, and where the device runs the new node with a kernel of its own.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import isclose
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.graph import DType, Graph, Node, TensorType, as_constant
from dovetail.locks import cached_property
from dovetail.op import Operator
from dovetail.passes import represented_by
from dovetail_ops_onnx.passes import HALVES, WIDENED

__all__ = [
    "FUSED_TYPES",
    "Attributes",
    "Const",
    "Keeps",
    "Match",
    "Op",
    "Or",
    "Pattern",
    "Replacement",
    "Rule",
    "Scalar",
    "Var",
    "product",
    "rewrite",
    "scalar_of",
]

Keeps = Callable[[Node, Graph], bool]
"""Whether a device runs the node, whose types are in the graph, with a kernel of its own."""
Attributes = Callable[[Any], bool]

PACKAGE = __name__.partition(".")[0]
"""The package whose operators patterns match: those of others may mean something else by the same name."""

RTOL = 1e-6
"""Relative: how far a constant of an exporter may be from the number that it stands for, beyond the rounding of its type."""

FUSED_TYPES = frozenset({DType.FLOAT32, DType.FLOAT16})
"""The data types of the forms that are recognised."""

_COMMUTATIVE = ("Add", "Mul")


@dataclass(frozen=True)
class Match:
    """The values matched by the names of a pattern, and the nodes that it covers, the last operator first."""

    values: Mapping[str, str] = field(default_factory=dict)
    nodes: tuple[Node, ...] = ()

    def bound(self, name: str, value: str) -> "Match | None":
        """The match with one more name; None when the name stands for another value already."""
        if self.values.get(name, value) != value:
            return None
        return self if name in self.values else Match({**self.values, name: value}, self.nodes)

    def covering(self, node: Node) -> "Match":
        """The match with one more node."""
        return self if node in self.nodes else Match(self.values, (*self.nodes, node))


class Pattern:
    """How a value came about."""

    def matches(self, graph: Graph, value: str, so_far: Match) -> Iterator[Match]:
        """Every way in which `value` is what the pattern says, on top of what is bound already."""
        raise TypeError(f"{type(self).__name__} is not a pattern")

    def may_match(self, graph: Graph, value: str) -> bool:
        """Whether `value` begins like the pattern. Most do not, and asking this first is much cheaper than `matches`."""
        return True

    @cached_property
    def operators(self) -> Mapping[str, int]:
        """The keys of operators that every match has, and how many nodes the one that has it is at most before the last.

        Kept, because patterns have others as parts in several places: those of attention have 8,000 parts, counted that way.
        """
        return {}

    def __or__(self, other: "Pattern") -> "Or":
        return Or((self, other))


@dataclass(frozen=True)
class Var(Pattern):
    """Any value; the same one wherever the name occurs."""

    name: str

    def matches(self, graph: Graph, value: str, so_far: Match) -> Iterator[Match]:
        found = so_far.bound(self.name, value)
        if found is not None:
            yield found


@dataclass(frozen=True)
class Const(Pattern):
    """A constant of one element, equal to a number as far as its type can tell."""

    number: float

    def may_match(self, graph: Graph, value: str) -> bool:
        return scalar_of(graph, value) is not None

    def matches(self, graph: Graph, value: str, so_far: Match) -> Iterator[Match]:
        found = scalar_of(graph, value)
        if found is not None and any(isclose(found, one, rel_tol=RTOL) for one in _rounded(self.number, value, graph)):
            yield so_far


@dataclass(frozen=True)
class Scalar(Pattern):
    """Any constant of one element, under a name."""

    name: str

    def may_match(self, graph: Graph, value: str) -> bool:
        return scalar_of(graph, value) is not None

    def matches(self, graph: Graph, value: str, so_far: Match) -> Iterator[Match]:
        found = so_far.bound(self.name, value) if scalar_of(graph, value) is not None else None
        if found is not None:
            yield found


@dataclass(frozen=True)
class Or(Pattern):
    """One of several patterns."""

    choices: tuple[Pattern, ...]

    def may_match(self, graph: Graph, value: str) -> bool:
        return any(choice.may_match(graph, value) for choice in self.choices)

    def matches(self, graph: Graph, value: str, so_far: Match) -> Iterator[Match]:
        for choice in self.choices:
            yield from choice.matches(graph, value, so_far)

    @cached_property
    def operators(self) -> Mapping[str, int]:
        first, *others = (choice.operators for choice in self.choices)
        return {key: max(steps, *(one[key] for one in others)) for key, steps in first.items() if all(key in o for o in others)}

    def __or__(self, other: Pattern) -> "Or":
        return Or((*self.choices, other))


class Op(Pattern):
    """The only output of a standard operator without post-ops, with these inputs; `where` looks at its attributes.

    Add and Mul take their inputs in either order. Inputs after those given must be left out, `more` allows them.
    """

    def __init__(self, key: str, *inputs: Pattern, where: Attributes | None = None, more: bool = False) -> None:
        self.key, self.inputs, self.where, self.more = key, inputs, where, more

    def may_match(self, graph: Graph, value: str) -> bool:
        node = graph.producers.get(value)
        return node is not None and node.op.key == self.key

    def matches(self, graph: Graph, value: str, so_far: Match) -> Iterator[Match]:
        node = graph.producers.get(value)
        if node is not None and self._fits(node):
            orders = [node.inputs]
            if self.key in _COMMUTATIVE and node.inputs[0] != node.inputs[1]:
                orders.append(node.inputs[::-1])
            for order in orders:
                # A pattern has no more inputs than the node.
                if all(one.may_match(graph, name) for one, name in zip(self.inputs, order, strict=False)):
                    yield from _all(graph, self.inputs, order, so_far.covering(node))

    @cached_property
    def operators(self) -> Mapping[str, int]:
        found = {self.key: 0}
        for one in self.inputs:
            found.update({key: max(steps + 1, found.get(key, 0)) for key, steps in one.operators.items()})
        return found

    def _fits(self, node: Node) -> bool:
        standard = node.op.key == self.key and node.op.package == PACKAGE
        if not standard or node.post_ops or len(node.outputs) != 1 or len(node.inputs) < len(self.inputs):
            return False
        if any(node.inputs[len(self.inputs) :]) and not self.more:
            return False
        return self.where is None or self.where(node.op)


def _all(graph: Graph, patterns: Sequence[Pattern], values: Sequence[str], so_far: Match) -> Iterator[Match]:
    if not patterns:
        yield so_far
        return
    for found in patterns[0].matches(graph, values[0], so_far):
        yield from _all(graph, patterns[1:], values[1:], found)


def product(*factors: Pattern) -> Pattern:
    """A product of two or three factors, multiplied in any order."""
    if len(factors) == 2:
        return Op("Mul", *factors)
    last = [(product(*(f for i, f in enumerate(factors) if i != index)), factors[index]) for index in range(len(factors))]
    return Or(tuple(Op("Mul", rest, factor) for rest, factor in last))


def scalar_of(graph: Graph, name: str) -> float | None:
    """The content of a constant of one element that is a number; None for any other value."""
    tensor = graph.types.get(name)
    if tensor is None or tensor.value is None or tensor.value.size != 1 or tensor.value.dtype.kind in "OSU":
        return None
    return float(tensor.value.reshape(()))


def _rounded(number: float, value: str, graph: Graph) -> Sequence[float]:
    """The number as the type of a constant rounds it; for a constant that was widened, as halves do, too."""
    dtype = graph.types[value].dtype
    if not dtype.is_float:
        return (number,)
    kinds = (*HALVES, dtype) if value.endswith(WIDENED) else (dtype,)
    return [float(np.asarray(number).astype(kind.numpy)) for kind in kinds]


@dataclass(frozen=True)
class Replacement:
    """The node that stands for a match: its operator, its inputs, and what among them is new.

    `constants` come with their content; `before` are nodes with the types of what they write.
    """

    op: Operator
    inputs: tuple[str, ...]
    constants: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    before: tuple[tuple[Node, TensorType], ...] = ()


@dataclass(frozen=True)
class Rule:
    """A pattern and what replaces it. `build(graph, match)` gives None where shapes, types or axes do not fit after all."""

    key: str
    pattern: Pattern
    build: Callable[[Graph, Match], Replacement | None]

    def __post_init__(self) -> None:
        assert self.key, "a rule needs the key of its last operator"

    @property
    def operators(self) -> Mapping[str, int]:
        """As those of the pattern."""
        return self.pattern.operators


def rewrite(graph: Graph, rules: Sequence[Rule], keeps: Keeps) -> Graph:
    """The graph with matches replaced, the largest first; nodes that only led to a result are dead afterwards. Needs types."""
    found: dict[int, tuple[Node, ...]] = {}
    taken: set[int] = set()
    constants, types = dict(graph.constants), dict(graph.types)
    sites = _sites(graph, rules)
    for node in reversed(graph.nodes) if sites else ():
        if id(node) not in sites or len(node.writes) != 1 or id(node) in taken:
            continue
        for match, replacement in _candidates(graph, node, sites[id(node)]):
            covered = {id(one) for one in match.nodes}
            added = {name: TensorType.of(array, known=True) for name, array in replacement.constants.items()}
            added |= {one.outputs[0]: tensor for one, tensor in replacement.before}
            merged = _node(node, match, replacement)
            inside = graph.replace(types={**graph.types, **added}) if added else graph
            new = [one for one in (*(one for one, _ in replacement.before), merged) if not one.op.is_view]
            if covered & taken or not all(keeps(one, inside) for one in new):
                continue
            constants.update({name: as_constant(array) for name, array in replacement.constants.items()})
            types.update(added)
            found[id(node)] = (*(one for one, _ in replacement.before), merged)
            taken |= covered
            break
    if not found:
        return graph
    nodes = tuple(new for node in graph.nodes for new in found.get(id(node), (node,)))
    return graph.replace(nodes=nodes, constants=constants, types=types)


def _sites(graph: Graph, rules: Sequence[Rule]) -> Mapping[int, Sequence[Rule]]:
    """The rules to try for a node, by its identity: those of whose operators the rarest is as near as the pattern has it."""
    by_key: dict[str, list[Node]] = {}
    for node in graph.nodes:
        by_key.setdefault(node.op.key, []).append(node)
    near: dict[tuple[str, int], Mapping[int, Node]] = {}
    sites: dict[int, list[Rule]] = {}
    for rule in rules:
        rarest = min(rule.operators.items(), key=lambda item: len(by_key.get(item[0], ())))
        if rarest not in near:
            near[rarest] = _following(graph, by_key.get(rarest[0], ()), rarest[1])
        for name, node in near[rarest].items():
            if node.op.key == rule.key:
                sites.setdefault(name, []).append(rule)
    return sites


def _following(graph: Graph, nodes: Sequence[Node], steps: int) -> Mapping[int, Node]:
    """The nodes, and those that read from them over at most so many steps, by identity."""
    found = latest = {id(node): node for node in nodes}
    for _ in range(steps):
        readers = (one for node in latest.values() for name in node.writes for one in graph.consumers.get(name, ()))
        latest = {id(one): one for one in readers if id(one) not in found}
        found = {**found, **latest}
    return found


def _candidates(graph: Graph, node: Node, rules: Sequence[Rule]) -> Iterator[tuple[Match, Replacement]]:
    for rule in rules:
        for match in rule.pattern.matches(graph, node.writes[0], Match()):
            if match.nodes[:1] == (node,) and _is_closed(graph, match):
                replacement = rule.build(graph, match)
                if replacement is not None and not _inner(match).intersection(replacement.inputs):
                    yield match, replacement
                    break


def _is_closed(graph: Graph, match: Match) -> bool:
    """Whether nothing but the result of a match is read outside of it."""
    inside = {id(node) for node in match.nodes}
    readers = ((name, graph.consumers.get(name, ())) for name in _inner(match))
    return all(name not in graph.output_names and all(id(reader) in inside for reader in found) for name, found in readers)


def _inner(match: Match) -> set[str]:
    """The values that will be gone."""
    return {name for node in match.nodes[1:] for name in node.writes}


def _node(last: Node, match: Match, replacement: Replacement) -> Node:
    order = sorted(match.nodes, key=lambda n: n is last)
    origins = represented_by(*order)
    return dataclasses.replace(last, op=replacement.op, inputs=replacement.inputs, origins=origins)
