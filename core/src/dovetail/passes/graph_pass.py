"""A graph pass, what it may look at, and how it is run."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dovetail.dataclass import dataclass, field
from dovetail.devices.checked import ask, prescribes
from dovetail.devices.contract import Device
from dovetail.devices.declared_post_ops import check_post_ops
from dovetail.devices.kernels import REFERENCE_KERNEL
from dovetail.devices.refusals import Refusal
from dovetail.devices.typed_node import TypedNode
from dovetail.errors import (
    DovetailError,
    GraphError,
    OutOfMemory,
    PluginError,
    RunCancelled,
    TimeLimitExceeded,
    UsageError,
    raised_by_handler,
)
from dovetail.graph.graph import Graph, Node
from dovetail.graph.types import TensorType
from dovetail.graph.validate import check_parts, validate
from dovetail.operators.operator import Operator
from dovetail.passes.constant_folding import fold_constants
from dovetail.phases import phase
from dovetail.protocol import Protocol

__all__ = ["PER_DEVICE", "STAGES", "Definitions", "GraphPass", "Notes", "PassContext", "PassReport", "Planned", "run_passes"]

STAGES = ("bind", "type", "quantize", "expand", "simplify", "recognise", "place", "fuse", "layout")
"""The stages in which passes run. Those of `fuse` and `layout` run on each device's part of the model."""

PER_DEVICE = ("fuse", "layout")


class Definitions(Protocol):
    """The operator definitions of a session."""

    def find(self, domain: str, op_type: str, version: int) -> type[Operator]:
        """The class that holds in operator set `version`. Raises `UnknownOperator`."""

    def choose(self, graph: Graph, devices: Sequence[Device]) -> tuple[Graph, Mapping[str, int]]:
        """The typed graph with the class for each node that the rules choose for these devices, and the rule by node name."""


@dataclass
class Notes:
    """Entries of passes in the report of a plan.

    `rules` has, by node name, the number of the rule that chose a node's definition among several, `stops` for a node whose
    post-op chain the device ended the node that stayed outside and the refusal, `deferred` what `type_and_fold` left for later,
    `varying` the values whose types change from plan to plan, `bodies` what compositions replaced (see `decompose`).
    A pass that sets `planned`, and `deferred` with it, ends the passes: `when_refused` is called if a device refuses that.
    `when_planned` is called with what was planned, if its passes have `any_sizes` or changed nothing. With `afresh` no pass takes
    over what others decided.
    """

    rules: dict[str, int] = field(default_factory=dict)
    stops: dict[str, tuple[str, Refusal]] = field(default_factory=dict)
    deferred: Any = None
    bodies: dict[str, tuple[Node, Graph | None]] = field(default_factory=dict)
    planned: "Planned | None" = None
    when_planned: "Callable[[Planned], object]" = id
    when_refused: Callable[[], object] = dict
    passes: "dict[str, PassReport]" = field(default_factory=dict)
    afresh: bool = False
    varying: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Planned:
    """The input of compilation: the whole graph, its parts (each `graph` for a device), and by node name where it runs, with the
    refusals of other devices. `analyzed` is the graph as stage `type` left it.
    """

    whole: Graph
    parts: Sequence[Any]
    placed: Mapping[str, Any]
    analyzed: Graph


@dataclass(frozen=True)
class PassContext:
    """Information for a pass besides the graph.

    `devices` are opened, in order of preference; `device` is the one of the part in the stages `fuse` and `layout`. `limit` is
    the largest size of a value in bytes, None for none, `budget` that of new constants (see `type_and_fold`). `memory` is where
    a pass keeps what plans of the same model for other shapes need too, under a key of its own.
    """

    definitions: Definitions
    devices: Sequence[Device] = ()
    limit: int | None = None
    budget: int = 64 << 20
    device: Device | None = None
    notes: Notes = field(default_factory=Notes)
    memory: dict[str, Any] = field(default_factory=dict)

    def keeps(self, node: Node, graph: Graph) -> bool:
        """Whether the first device runs the node, whose types are in the graph, with a kernel other than the reference."""
        if not self.devices:
            return False
        answer = ask(self.devices[0], TypedNode.of(node, graph))
        return not isinstance(answer, Refusal) and answer.kernel != REFERENCE_KERNEL

    def prescribed(self, domain: str, op_type: str) -> bool:
        """Whether the user gave one of the devices a kernel for operators of this name: no pass touches such nodes."""
        return any(prescribes(device, domain, op_type) for device in self.devices)


@dataclass(frozen=True)
class GraphPass:
    """A named step from graph to graph.

    `run` must be a pure function: it returns the graph that it was given where it changes nothing, and keeps inputs and outputs
    in order. `needs_shapes` is False for a pass that works on any graph: it runs once for a model instead of once for each set
    of input shapes; such passes come first. An `essential` pass cannot be left out. `origin` is the package that brings the
    pass; the core fills it in for passes of plugins. `any_sizes` is True for a pass whose result may be taken over for other
    input sizes: it decides by data types, ranks, constants, and whether sizes are equal, 0 or 1, and gives new nodes the
    origins of those that they replace.

    Graphs are bound from stage `type` on; from stage `quantize` on all values have static types and nodes are in schedule order.
    """

    name: str
    stage: str
    run: Callable[[Graph, PassContext], Graph]
    needs_shapes: bool = True
    essential: bool = False
    origin: str = ""
    any_sizes: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not self.name.replace("-", "_").isidentifier():
            raise PluginError(f"a graph pass has the name {self.name!r}", hint="accepted: a word, such as 'fuse_attention'")
        if not callable(self.run):
            raise PluginError(
                f"graph pass {self.name!r} has for run a {type(self.run).__name__}",
                hint="accepted: a function of a graph and a PassContext that returns a graph",
            )
        if self.stage not in STAGES:
            raise PluginError(f"graph pass {self.name!r} is for the stage {self.stage!r}", hint=f"accepted: {', '.join(STAGES)}")


@dataclass(frozen=True, slots=True)
class PassReport:
    """Record of a pass in one plan: its stage and origin, the number of nodes before and after, and its time in seconds.

    `changed` is False for a pass that left nodes, outputs and constants as they were. Passes that run on several parts of a
    model are added up. An `essential` pass cannot be left out.
    """

    name: str
    stage: str
    origin: str
    before: int
    after: int
    seconds: float
    essential: bool = False
    changed: bool = False

    def and_also(self, other: "PassReport") -> "PassReport":
        """Both runs as one."""
        before, after = self.before + other.before, self.after + other.after
        changed = self.changed or other.changed
        return replace(self, before=before, after=after, seconds=self.seconds + other.seconds, changed=changed)


def run_passes(graph: Graph, passes: Sequence[GraphPass], context: PassContext) -> Graph:
    """The graph after the passes, in order. Each leaves a `PassReport` in the notes.

    Raises what passes of the core raise; of a plugin's pass what is not its fault: `UsageError`, `TimeLimitExceeded`,
    `RunCancelled`, and `OutOfMemory` naming pass and plugin; `PluginError` naming pass and plugin for one that raises otherwise,
    returns something other than a graph, changes inputs or outputs, or makes a graph that is not valid.
    """
    for one in passes:
        if context.notes.planned is not None:
            break
        started = time.perf_counter()
        with phase(one.name, "pass", stage=one.stage, package=one.origin or "dovetail", before=len(graph.nodes)) as details:
            after = _guarded(graph, one, context) if one.origin else one.run(graph, context)
            details["after"] = len(after.nodes)
        seconds = time.perf_counter() - started
        counts = len(graph.nodes), len(after.nodes)
        report = PassReport(one.name, one.stage, one.origin, *counts, seconds, one.essential, _differ(graph, after))
        earlier = context.notes.passes.get(one.name)
        context.notes.passes[one.name] = report if earlier is None else earlier.and_also(report)
        graph = after
    return graph


def _differ(one: Graph, other: Graph) -> bool:
    if one is other:
        return False
    before, now = one.constants, other.constants
    same = one.nodes == other.nodes and one.outputs == other.outputs and before.keys() == now.keys()
    return not same or any(array is not before[name] for name, array in now.items())


def _guarded(graph: Graph, one: GraphPass, context: PassContext) -> Graph:
    hint = f"leave it out with the property PASSES='-{one.name}', and report it to the authors of {one.origin}"
    where = f"graph pass {one.name!r} of {one.origin}"
    try:
        after = one.run(graph, context)
    except (Exception, SystemExit) as error:
        if raised_by_handler(error):
            raise
        check_post_ops(graph)
        if isinstance(error, UsageError | OutOfMemory | RunCancelled | TimeLimitExceeded):
            raise  # not the pass's fault
        if isinstance(error, MemoryError):
            raise OutOfMemory(f"{where}: {str(error) or 'the host has no memory left'}") from error
        message = error.message if isinstance(error, DovetailError) else str(error)
        raise PluginError(f"{where} raised {type(error).__name__}: {message}", hint=hint) from error
    if after is graph:
        return graph
    if not isinstance(after, Graph):
        raise PluginError(f"{where} returned {type(after).__name__}, not a Graph", hint=hint)
    try:
        return _checked(graph, after, one, where, hint)
    except DovetailError:
        raise
    except (Exception, SystemExit) as error:
        if raised_by_handler(error):
            raise
        # Parts of other types. Only now: on graphs that are right this look costs 0.3 ms for each 1,000 nodes.
        try:
            check_parts(after, [name for name in graph.inputs if name in graph.types])  # in sub-graphs, some have none
        except GraphError as found:
            raise PluginError(f"{where} made a graph that is not valid: {found.message}", hint=hint) from error
        raise


def _checked(graph: Graph, after: Graph, one: GraphPass, where: str, hint: str) -> Graph:
    for side in ("inputs", "outputs"):
        before, now = getattr(graph, side), getattr(after, side)
        if len(before) != len(now) or (side == "inputs" and before != now):
            raise PluginError(f"{where} changed the {side} of the graph from {list(before)} to {list(now)}", hint=hint)
    try:
        validate(after)
        after = _with_constants(graph, after)
    except GraphError as error:
        raise PluginError(f"{where} made a graph that is not valid: {error.message}", hint=hint) from error
    return _typed(graph, after, one, where, hint)


def _with_constants(before: Graph, after: Graph) -> Graph:
    """The graph with the types of constants that are new, or have another content under the type of the old one.

    Raises `GraphError` for a constant that is not an array.
    """
    types = {}
    for name, array in after.constants.items():
        if array is before.constants.get(name):
            continue
        if not isinstance(array, np.ndarray):
            raise GraphError(f"the constant {name!r} is a {type(array).__name__}; accepted: a NumPy array")
        old = after.types.get(name)
        if old is None or old is before.types.get(name):
            types[name] = TensorType.of(array, known=True)
            if old is not None:
                types[name] = types[name].with_layout(old.layout)
    return after.replace(types={**after.types, **types}) if types else after


def _is_static(graph: Graph) -> bool:
    """Whether the types of all results are known, with their sizes."""
    return all(name in graph.types and graph.types[name].is_static for node in graph.nodes for name in node.writes)


def _typed(before: Graph, after: Graph, one: GraphPass, where: str, hint: str) -> Graph:
    # In the stage `type` sizes may be open, and passes of plugins may come before those of the core that find types.
    if one.stage == "bind" or (one.stage == "type" and not _is_static(before)):
        return after
    if any(name not in after.types for node in after.nodes for name in node.writes):
        try:
            after = fold_constants(after)
        except DovetailError as error:
            raise PluginError(f"{where} made a graph that is not valid: {error.message}", hint=hint) from error
    for old, new in zip(before.outputs, after.outputs, strict=True):
        expected, found = before.types[old], after.types[new]
        if (expected.dtype, expected.shape) != (found.dtype, found.shape):
            raise PluginError(f"{where} changed the output {old!r} from {expected} to {found}", hint=hint)
    return after
