"""Finds the first node of a plan whose result differs from a peer's, with every node before it merged as in the whole plan.

Outputs are added only where the plan has a value between two of its nodes anyway. So no merged node falls apart, and a fault that
only a merged node has is still there.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from dovetail.errors import DovetailError, UsageError
from dovetail.graph import Model, Node
from dovetail.runtime import NodePlacement
from dovetail_views.distance import distance
from dovetail_views.peers import DovetailPeer, Peer, Values

__all__ = ["Cut", "Finding", "Part", "bisect"]


@dataclass(frozen=True)
class Cut:
    """A place behind the node at `index` of the plan: the values of the model that are in use there."""

    index: int
    names: tuple[str, ...]


@dataclass(frozen=True)
class Part:
    """Some nodes of the model as a model, the peer's values for its inputs, and those that its outputs should have."""

    model: Model
    inputs: Values
    expected: Values
    nodes: int


@dataclass(frozen=True)
class Finding:
    """Result of a search. With no difference all else is left out.

    `node` is the first of the plan that is wrong, `value` one that it writes and `relative` its difference from the peer's, or
    `error` what it raised. `origins` are the nodes of the model. `kept` is False when the plan up to there changed because values
    in it became outputs. `runs` counts the runs of the model on both sides. `part` is the smallest part found that shows the
    difference alone, and `passes` are those without which it is gone.
    """

    agree: bool
    runs: int
    nodes: int = 0
    node: NodePlacement | None = None
    value: str = ""
    relative: float = 0.0
    error: str = ""
    origins: tuple[str, ...] = ()
    kept: bool = True
    part: Part | None = None
    passes: tuple[str, ...] = ()


@dataclass
class _Search:
    """The two sides, and the model between them. `values` are the peer's."""

    model: Model
    inputs: Values
    subject: DovetailPeer
    peer: Peer
    tolerance: float
    values: dict[str, Any] = field(default_factory=dict)
    runs: int = 0

    def expect(self, names: Iterable[str]) -> None:
        """Have the peer compute these values, unless it has."""
        missing = [name for name in dict.fromkeys(names) if name not in self.values]
        if missing:
            self.values |= self.peer.values(self.model, self.inputs, missing)
            self.runs += 1

    def differs(self, model: Model, inputs: Values, names: Sequence[str], subject: DovetailPeer) -> tuple[str, float, str] | None:
        """The value that differs most, with its relative difference, or the error; None where all agree."""
        try:
            got = subject.values(model, inputs, names)
        except DovetailError as error:
            return names[0], float("inf"), str(error)
        worst = max(((name, distance(got[name], self.values[name])[1]) for name in names), key=lambda pair: pair[1])
        return None if worst[1] <= self.tolerance else (*worst, "")


def bisect(
    model: Model,
    inputs: Values,
    subject: DovetailPeer,
    peer: Peer,
    tolerance: float,
    told: Callable[[str], None] = lambda text: None,
) -> Finding:
    """Search `model`, whose inputs have static types, in at most `ceil(log2(nodes of the plan)) + 2` runs of it.

    Raises what planning the whole model raises; an error of a run is a difference.
    """
    with subject.compiled(model) as compiled:
        plan = [node for node in compiled.report().nodes if not node.holder]
    search = _Search(model, inputs, subject, peer, tolerance)
    origins = [_nodes_of(model, node) for node in plan]
    cuts = _cuts(model, plan, origins)
    search.expect(name for cut in cuts for name in cut.names)
    wrong = search.differs(model, inputs, model.graph.outputs, subject)
    if wrong is None:
        return Finding(agree=True, runs=search.runs + 1, nodes=len(plan))
    found, kept, tests = _first(search, cuts, wrong, plan, told)
    runs = search.runs + 1 + tests
    cut, (value, relative, error) = found
    node = plan[cut.index]
    part = _part_alone(search, cuts, cut, origins)
    passes = _passes(search, part) if part is not None else ()
    return Finding(False, runs, len(plan), node, value, relative, error, tuple(origins[cut.index]), kept, part, passes)


def _nodes_of(model: Model, placed: NodePlacement) -> dict[str, Node]:
    """The nodes of the model that one of the plan stands for; those that a pass made have a node's name before a slash."""
    known = {node.name: node for node in model.graph.nodes}
    found = {}
    for name in placed.origins or (placed.name,):
        while name and name not in known:
            name = name.rpartition("/")[0]
        if name:
            found[name] = known[name]
    return found


def _cuts(model: Model, plan: Sequence[NodePlacement], origins: Sequence[Mapping[str, Node]]) -> list[Cut]:
    """All places where values of the model are between nodes of the plan, the last behind the whole of it."""
    graph = model.graph
    readers: dict[str, set[str]] = {}
    for node in graph.nodes:
        for name in node.reads:
            readers.setdefault(name, set()).add(node.name)
    done: set[str] = set()
    written: dict[str, None] = {}
    cuts = []
    for index, (placed, nodes) in enumerate(zip(plan, origins, strict=True)):
        done |= set(nodes)
        values = [value.name for value in placed.outputs] or [name for node in nodes.values() for name in node.writes]
        new = [name for name in values if name in graph.producers]
        written.update(dict.fromkeys(new))
        if new:
            live = [n for n in written if n in new or n in graph.outputs or readers.get(n, set()) - done]
            cuts.append(Cut(index, tuple(live)))
    outputs = tuple(dict.fromkeys(name for name in graph.outputs if name not in graph.constants and name not in graph.inputs))
    if not outputs:
        raise UsageError(f"no node computes an output of {model.source}")
    return [*(cut for cut in cuts if cut.index < len(plan) - 1), Cut(len(plan) - 1, outputs)]


def _first(
    search: _Search,
    cuts: Sequence[Cut],
    wrong: tuple[str, float, str],
    plan: Sequence[NodePlacement],
    told: Callable[[str], None],
) -> tuple[tuple[Cut, tuple[str, float, str]], bool, int]:
    """The first cut with a difference, whether its plan is that of the whole model as far as it goes, and the runs it took."""
    low, high, kept, tests = -1, len(cuts) - 1, True, 0
    while high - low > 1:
        middle = (low + high) // 2
        cut = cuts[middle]
        answer = search.differs(search.model, search.inputs, cut.names, search.subject)
        tests += 1
        told(f"{plan[cut.index].name}: {'agrees' if answer is None else f'differs by {answer[1]:.3g}'}")
        if answer is None:
            low = middle
        else:
            high, wrong, kept = middle, answer, _same_plan(search.subject, plan[: cut.index + 1])
    return (cuts[high], wrong), kept, tests


def _same_plan(subject: DovetailPeer, plan: Sequence[NodePlacement]) -> bool:
    now = {} if subject.latest is None else {n.origins: (n.kernel, n.post_ops) for n in subject.latest.nodes if not n.holder}
    return all(now.get(node.origins) == (node.kernel, node.post_ops) for node in plan if node.origins)


def _part_alone(search: _Search, cuts: Sequence[Cut], cut: Cut, origins: Sequence[Mapping[str, Node]]) -> Part | None:
    """The part of one, two, four, ... nodes of the plan that ends at the cut and shows a difference; None if none does."""
    size = 1
    while True:
        start = max(0, cut.index + 1 - size)
        part = _part(search, {name for nodes in origins[start : cut.index + 1] for name in nodes}, cut.names, size)
        if part is not None and search.differs(part.model, part.inputs, tuple(part.expected), search.subject) is not None:
            return part
        if start == 0:
            return None
        size *= 2


def _part(search: _Search, names: set[str], outputs: Sequence[str], size: int) -> Part | None:
    graph = search.model.graph
    nodes = tuple(node for node in graph.nodes if node.name in names)
    written = {name for node in nodes for name in node.writes}
    reads = dict.fromkeys(name for node in nodes for name in node.reads if name not in written)
    wanted = tuple(name for name in outputs if name in written)
    if not wanted:
        return None
    constants = {name: graph.constants[name] for name in reads if name in graph.constants}
    given = tuple(name for name in reads if name not in constants)
    search.expect(name for name in (*given, *wanted) if name not in search.inputs)
    values = {name: search.inputs[name] if name in search.inputs else search.values[name] for name in given}
    types = {name: graph.types[name] for name in constants} | {name: _type_of(value) for name, value in values.items()}
    part = graph.replace(nodes=nodes, inputs=given, outputs=wanted, constants=constants, types=types)
    expected = {name: search.values[name] for name in wanted}
    return Part(replace(search.model, graph=part), values, expected, size)


def _type_of(value: Any) -> Any:
    import numpy as np

    from dovetail.graph import TensorType

    if not isinstance(value, np.ndarray):
        raise UsageError(f"a part of the model would take a {type(value).__name__} as input; accepted: arrays")
    return TensorType.of(value)


def _passes(search: _Search, part: Part) -> tuple[str, ...]:
    """The first optional pass without which, and without those before it, the part is right; nothing when none makes it so."""
    report = search.subject.latest
    optional = [one.name for one in report.passes if not one.essential] if report is not None else []

    def is_right(count: int) -> bool:
        subject = search.subject.without(optional[:count])
        return search.differs(part.model, part.inputs, tuple(part.expected), subject) is None

    if not optional or not is_right(len(optional)):
        return ()
    low, high = 0, len(optional)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if is_right(middle) else (middle, high)
    return (optional[high - 1],)
