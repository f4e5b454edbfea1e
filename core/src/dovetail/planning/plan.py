"""A plan: a model compiled for one set of input shapes, with what is planned later, when the data is there."""

import math
import weakref
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.devices.checked import Result, new_request
from dovetail.devices.contract import Device, Executable, ExecutableRequest
from dovetail.devices.interruptible import InterruptibleRequest, Pace, are_calls_left
from dovetail.errors import DovetailError
from dovetail.graph.dtype import DType
from dovetail.graph.graph import Graph, Node
from dovetail.graph.types import CONTAINERS, MapType, OptionalType, SequenceType, TensorType
from dovetail.locks import cached_property
from dovetail.planning.plan_cache import ROOM, SURE, PlanCache

if TYPE_CHECKING:
    from dovetail.planning.better import Better
    from dovetail.planning.report import NodePlacement, PlanReport

__all__ = [
    "Body",
    "HostStep",
    "OpenInputs",
    "Plan",
    "Room",
    "Shapes",
    "Signature",
    "Source",
    "Step",
    "Tail",
    "Target",
    "bytes_of",
    "declared_signature",
    "full_report",
    "signature",
    "typed_inputs",
]

_NODE = 4_000
"""Bytes that a plan takes for each node, the code of primitives beside it left out: MiniLM's, of 88 nodes, 260,000."""

Shapes = tuple[tuple[int, ...] | None, ...]
"""One shape for each input of a model, in order; None for a sequence or an optional."""

Signature = tuple[tuple[DType, tuple[int, ...]] | str, ...]
"""Signature of the inputs of a plan in the middle of a model: data type and shape of each, or its kind."""

Source = int | NDArray[Any] | None
"""Where a value comes from: a slot, a constant, or nowhere because it is left out."""


@dataclass(frozen=True)
class Body:
    """A sub-graph of a node: its plans, and where the values come from that it reads from outside.

    `types` infers the types of its outputs, as `RunGraph.types`. `declared` is the signature that the model declares for it; None
    where it leaves one open.
    """

    graph: Graph
    plans: "PlanCache[Signature, Plan]"
    captures: tuple[Source, ...]
    types: Callable[[Signature], Sequence[TensorType | None]]
    declared: Signature | None = None

    def plan_ahead(self, where: str) -> dict[str, str]:
        """As `Plan.plan_subgraphs`, for this one, which is at `where`, and those in it."""
        try:
            if self.plans.latest is None and self.declared is not None:
                self.plans.get(self.declared)
        except DovetailError as error:
            return {where: error.message}
        latest = self.plans.latest
        return latest.plan_subgraphs(f"{where}/") if latest else {where: "the types of its inputs are known when it runs"}


@dataclass(frozen=True)
class HostStep:
    """A node that runs on the host, with the slots that it reads and writes. `gives_containers`: no types to infer."""

    node: Node
    reads: tuple[Source, ...]
    writes: tuple[int, ...]
    bodies: tuple[Body, ...]
    limit: int
    gives_containers: bool = False

    @property
    def named_bodies(self) -> Iterable[tuple[str, Body]]:
        """The sub-graphs with the attributes that they are."""
        return zip(self.node.op.named_subgraphs, self.bodies, strict=True)


@dataclass(frozen=True)
class Tail:
    """The part after the steps of a plan: host steps, and a rest that is planned for the shapes that they give, if any."""

    steps: tuple[HostStep, ...]
    rest: "PlanCache[Signature, Plan] | None"


@dataclass(frozen=True)
class Target:
    """A device to plan for: its name, the opened device, its options, and the distribution it comes from."""

    name: str
    device: Device
    options: Mapping[str, Any]
    provider: str


@dataclass(frozen=True)
class Step:
    """One executable with the slots it reads and writes, and its results. `pace` makes its runs where a node may take long."""

    device: str
    executable: Executable
    reads: tuple[int, ...]
    writes: tuple[int, ...]
    results: tuple[Result, ...]
    pace: Pace | None = None

    def create_request(self) -> ExecutableRequest:
        """A new request, whose runs can be ended at any time."""
        if self.pace is None:
            return new_request(self.device, self.executable)
        return InterruptibleRequest(self.executable, self.pace)


class Room:
    """How many elements inputs of open shapes may have: at first `most`, and twice as many whenever that is not enough and one of
    the last two runs took at most so many `seconds`, with at least half of them. Threads may share it: at worst a run counts for
    another.
    """

    __slots__ = ("_elements", "_latest", "_most", "_seconds", "_took")

    def __init__(self, most: float, seconds: float = 0.0) -> None:
        self._most, self._seconds = most, seconds
        self._elements, self._latest, self._took = 0, math.inf, math.inf

    def took(self, seconds: float) -> None:
        """Note how long a run took on the host, with as many elements as were asked for last."""
        self._took, self._latest = min(seconds, self._latest), seconds

    def has(self, elements: int) -> bool:
        """Whether there is room for so many."""
        if elements > self._most:
            if self._took > self._seconds or not self._most / 2 <= self._elements or elements > 2 * self._most:
                return False
            self._most, self._latest, self._took = 2 * self._most, math.inf, math.inf
        self._elements = elements
        return True


@dataclass(frozen=True)
class OpenInputs:
    """The inputs, by number, of which a plan takes other shapes too, and how many elements they may have together."""

    numbers: frozenset[int]
    room: Room

    def serve(self, taken: Sequence[Any], given: Sequence[Any]) -> bool:
        """Whether what a plan takes, pairs of a data type and a shape, or other kinds, lets it take something else."""
        elements, numbers = 0, self.numbers
        for number, (one, other) in enumerate(zip(taken, given, strict=True)):
            if number in numbers:
                if type(one) is not tuple or type(other) is not tuple or one[0] != other[0]:
                    return False
                elements += math.prod(other[1])
            elif one != other:
                return False
        return self.room.has(elements)


@dataclass(frozen=True)
class Plan:
    """A model compiled for one set of input shapes.

    Values between steps live in slots: first the inputs, then what steps write. An output is a slot or a constant. With a
    `tail` whose rest is still to be planned, `outputs` are the inputs of that rest, and `types` is empty. `make_report` is called
    when the report is first read: most plans for new shapes are never looked at. A provisional plan has a `better` one. Where the
    steps are `brief`, it takes longer to plan them than to run them by references. A plan with
    `open_inputs` serves other shapes of these: the host runs the nodes that see them. `made` are the bytes of the large constants
    that are not the model's, by their identities: plans may share them.
    """

    steps: tuple[Step, ...]
    inputs: int
    slots: int
    outputs: tuple[Source, ...]
    types: tuple[TensorType, ...]
    make_report: "Callable[[], PlanReport]"
    tail: Tail | None = None
    better: "Better[Plan] | None" = None
    brief: bool = False
    open_inputs: OpenInputs | None = None
    nodes: int = 0
    made: Mapping[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.better is not None:
            weakref.finalize(self, self.better.cancel)

    @cached_property
    def report(self) -> "PlanReport":
        """Device, kernel and reason for each node, and what each pass did."""
        return self.make_report()

    @property
    def final(self) -> "Plan":
        """The final plan once it is made, in place of a provisional one."""
        return self if self.better is None or self.better.plan is None else self.better.plan

    @property
    def following(self) -> "Plan | None":
        """The plan that was made last for what this one leaves to be planned."""
        return None if self.tail is None or self.tail.rest is None else self.tail.rest.latest

    @property
    def is_brief(self) -> bool:
        """Whether this plan is `brief`, and those that follow it."""
        plan: Plan | None = self
        while plan is not None and plan.brief:
            plan = plan.following
        return plan is None

    def plan_subgraphs(self, path: str = "") -> dict[str, str]:
        """Plan the sub-graphs that have not run, for the types that the model declares. Those that cannot be: path -> why."""
        missed: dict[str, str] = {}
        plan: Plan | None = self
        while plan is not None:  # no recursion: graphs may be cut into many parts
            steps = () if plan.tail is None else plan.tail.steps
            for where, body in ((f"{path}{s.node.name}/{name}", b) for s in steps for name, b in s.named_bodies):
                missed |= body.plan_ahead(where)
            plan = plan.following
        return missed

    def close(self) -> None:
        """Free the executables, those of following plans and sub-graphs too."""
        waiting = [self]
        while waiting:
            plan = waiting.pop()
            if plan.better is not None:
                plan.better.close()
            for step in () if are_calls_left() else plan.steps:
                step.executable.close()
            if plan.tail is not None:
                bodies = [body.plans for step in plan.tail.steps for body in step.bodies]
                waiting += [p for cache in (*bodies, *([plan.tail.rest] if plan.tail.rest else [])) for p in cache.clear()]


def bytes_of(plans: Collection[Plan]) -> int:
    """About so many bytes are in memory for these plans. For one with a tail as many as let `PlanCache` keep `SURE` of them."""
    made = {one: nbytes for plan in plans for one, nbytes in plan.made.items()}
    return sum(made.values()) + sum([_NODE * plan.nodes if plan.tail is None else ROOM // SURE for plan in plans])


def full_report(plan: Plan) -> "PlanReport":
    """The report of the plan, with the sub-graphs as they ran last, and the plans that were made last for what follows."""
    plan = plan.final
    report, later = _with_bodies(plan), plan.following
    while later is not None:
        report, later = report.followed_by(_with_bodies(later)), later.following
    return report


def _with_bodies(plan: Plan) -> "PlanReport":
    """The report of one plan: after each node that runs sub-graphs their nodes, as they were planned last."""
    steps = {} if plan.tail is None else {step.node.name: step for step in plan.tail.steps}
    nodes: list[NodePlacement] = []
    for node in plan.report.nodes:
        nodes.append(node)
        step = steps.get(node.name)
        for attribute, body in () if step is None else step.named_bodies:
            ran = body.plans.latest
            if ran is not None:
                holder = f"{node.name}/{attribute}"
                nodes += [inner.held_by(holder) for inner in full_report(ran).nodes]
    return plan.report if len(nodes) == len(plan.report.nodes) else replace(plan.report, nodes=tuple(nodes))


def signature(values: Sequence[Any]) -> Signature:
    """The key of a plan for these values."""
    return tuple((DType.of(v.dtype), v.shape) if isinstance(v, np.ndarray) else _KINDS[type(v)] for v in values)


def declared_signature(types: Sequence[TensorType | None]) -> Signature | None:
    """The key of a plan for values of these types; None where one is unknown, has open dimensions or belongs to a sequence."""
    found = [(t.dtype, t.dims) for t in types if t is not None and not isinstance(t, CONTAINERS) and t.is_static]
    return tuple(found) if len(found) == len(types) else None


_KINDS = {list: "sequence", dict: "map", type(None): "absent"}
_TYPES: Mapping[str, type[TensorType]] = {"sequence": SequenceType, "map": MapType, "absent": OptionalType}


def typed_inputs(graph: Graph, key: Signature) -> Graph:
    """The graph with the types of its inputs from a signature."""
    types = dict(graph.types)
    for name, item in zip(graph.inputs, key, strict=True):
        declared = types.get(name)
        dtype = DType.FLOAT32 if declared is None else declared.dtype
        if isinstance(item, str):
            kind = _TYPES[item]
            types[name] = declared if isinstance(declared, kind) else kind(dtype, None)
        else:
            types[name] = TensorType(*item)
    return graph.replace(types=types)
