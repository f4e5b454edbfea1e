"""From a model and input shapes to a plan: the passes in their order, then one executable for each part."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from dovetail.device import REFERENCE_KERNEL, Device, Executable, Refusal, Reorder, TypedNode
from dovetail.errors import CompileError, UnsupportedNode
from dovetail.graph.model import Graph, Node
from dovetail.graph.types import TensorType
from dovetail.op import Operator
from dovetail.passes.bind import Find, bind
from dovetail.passes.constant_folding import check_sizes, fold_constants
from dovetail.passes.decompose import decompose
from dovetail.passes.eliminate import drop_dead_nodes, drop_identities
from dovetail.passes.fold_batch_norm import fold_batch_norm
from dovetail.passes.fuse_activations import fuse_activations
from dovetail.passes.fuse_attention import fuse_attention
from dovetail.passes.fuse_normalizations import fuse_normalizations
from dovetail.passes.fuse_post_ops import fuse_post_ops
from dovetail.passes.layout import assign_layouts
from dovetail.passes.opaque import declare, pin
from dovetail.passes.partition import Part, partition
from dovetail.passes.unfuse_post_ops import unfuse_post_ops
from dovetail.runtime.dispatch import Dispatch
from dovetail.runtime.options import CompileOptions
from dovetail.runtime.report import NodePlacement, PlanReport, ValuePlacement

__all__ = ["Plan", "Step", "Target", "analyze", "make_plan", "optimise", "place"]

Pass = Callable[[Graph], Graph]


@dataclass(frozen=True)
class Target:
    """A device to plan for: its name, the opened device, its options, and the distribution it comes from."""

    name: str
    device: Device
    options: Mapping[str, Any]
    provider: str


@dataclass(frozen=True)
class Step:
    """One executable with the slots it reads and writes."""

    device: str
    executable: Executable
    reads: tuple[int, ...]
    writes: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """A model compiled for one set of input shapes.

    Values between steps live in slots: first the model's inputs, then what steps write. An output is a slot or a constant.
    """

    steps: tuple[Step, ...]
    slots: int
    outputs: tuple[int | NDArray[Any], ...]
    types: tuple[TensorType, ...]
    report: PlanReport

    def close(self) -> None:
        """Free the executables."""
        for step in self.steps:
            step.executable.close()


def analyze(graph: Graph, find: Find, limit: int | None = None) -> Graph:
    """The graph bound, typed, folded, and without dead nodes. All inputs must have static types."""
    return drop_dead_nodes(drop_identities(fold_constants(bind(unfuse_post_ops(graph), find), limit=limit)))


def place(graph: Graph, targets: Sequence[Target]) -> Mapping[str, tuple[str, tuple[tuple[str, Refusal], ...]]]:
    """For each node the first target that accepts it (`""` if none does), and the refusals of those asked before."""
    placed = {}
    for node in graph.nodes:
        typed = TypedNode.of(node, graph)
        refusals = []
        home = ""
        for target in targets:
            answer = target.device.supports(typed)
            if answer:
                home = target.name
                break
            assert isinstance(answer, Refusal)
            refusals.append((target.name, answer))
        placed[node.name] = (home, tuple(refusals))
    return placed


def make_plan(
    graph: Graph,
    dispatch: Dispatch,
    targets: Sequence[Target],
    options: CompileOptions,
    provider_of: Callable[[type[Operator]], str],
    extra_passes: Sequence[Pass] = (),
) -> Plan:
    """Compile a graph whose inputs have static types for devices in order of preference.

    Raises `OperatorError` and its kin for a bad graph, `UnsupportedNode` for a node that no target accepts, `CompileError`
    for what goes wrong on a device.
    """
    started = time.perf_counter()
    whole, rules = optimise(graph, dispatch, targets, options, extra_passes)
    placed = place(whole, targets)
    _require_homes(whole, placed)
    by_name = {target.name: target for target in targets}
    parts: list[Part] = []
    stops: dict[str, tuple[str, Refusal]] = {}
    for part in partition(whole, {name: home for name, (home, _) in placed.items()}):
        device, inner = by_name[part.device].device, part.graph
        if options.FUSION:
            fused = fuse_post_ops(inner, device.supports)
            stops.update(fused.stops)
            inner = drop_dead_nodes(fused.graph)
        parts.append(replace(part, graph=assign_layouts(device.lower(inner), device.configurations)))
    passed = time.perf_counter()
    executables = _compile(parts, by_name)
    seconds = {"passes": passed - started, "compile": time.perf_counter() - passed}
    nodes = tuple(_placements(parts, executables, by_name, placed, stops, rules, provider_of))
    memory: dict[str, int] = {}
    for part, executable in zip(parts, executables, strict=True):
        memory[part.device] = memory.get(part.device, 0) + executable.memory.peak
    reorders = sum(isinstance(node.op, Reorder) for part in parts for node in part.graph.nodes)
    return _wire(whole, parts, executables, PlanReport(nodes, len(parts), memory, seconds, reorders))


def optimise(
    graph: Graph, dispatch: Dispatch, targets: Sequence[Target], options: CompileOptions, extra_passes: Sequence[Pass]
) -> tuple[Graph, Mapping[str, int]]:
    """The graph that is placed on devices, and for each node with several candidates the rule that chose its class.

    Compositions are expanded where the first target has no kernel for them; batch norms are folded.
    """

    def keeps(node: Node, inside: Graph) -> bool:
        answer = targets[0].device.supports(TypedNode.of(node, inside))
        return not isinstance(answer, Refusal) and answer.kernel != REFERENCE_KERNEL

    devices = [target.device for target in targets]
    graph = declare(graph, dispatch.find, devices)
    graph, rules = dispatch.choose(analyze(graph, dispatch.find, options.MEMORY_LIMIT), targets)
    graph = pin(graph, devices)
    graph = drop_identities(decompose(graph, keeps))
    graph = fuse_normalizations(fuse_activations(fold_batch_norm(graph), keeps), keeps)
    graph = fuse_attention(graph, keeps)
    for one in extra_passes:
        graph = fold_constants(one(graph))
    graph = drop_dead_nodes(graph)
    check_sizes(graph, options.MEMORY_LIMIT)
    return graph, rules


def _require_homes(graph: Graph, placed: Mapping[str, tuple[str, tuple[tuple[str, Refusal], ...]]]) -> None:
    for node in graph.nodes:
        home, refusals = placed[node.name]
        if not home:
            said = "; ".join(f"{device}: {refusal}" for device, refusal in refusals)
            types = ", ".join("-" if name == "" else str(graph.types[name]) for name in node.inputs)
            hint = "let FALLBACK be True" if len(refusals) == 1 else "give the operator a NumPy reference"
            raise UnsupportedNode(f"no device runs node {node} with inputs ({types}): {said}", hint=hint)


def _compile(parts: Sequence[Part], by_name: Mapping[str, Target]) -> list[Executable]:
    done: list[Executable] = []
    try:
        for part in parts:
            target = by_name[part.device]
            done.append(target.device.compile(part.graph, target.options))
    except BaseException:
        for executable in done:
            executable.close()
        raise
    return done


def _placements(
    parts: Sequence[Part],
    executables: Sequence[Executable],
    by_name: Mapping[str, Target],
    placed: Mapping[str, tuple[str, tuple[tuple[str, Refusal], ...]]],
    stops: Mapping[str, tuple[str, Refusal]],
    rules: Mapping[str, int],
    provider_of: Callable[[type[Operator]], str],
) -> Sequence[NodePlacement]:
    found = []
    for part, executable in zip(parts, executables, strict=True):
        nodes = {node.name: node for node in part.graph.nodes}
        for said in executable.reports:
            node = nodes.get(said.name)
            if node is None:
                raise CompileError(f"device {part.device} reports a node {said.name!r} that it was not given")
            provider = provider_of(type(node.op)) if said.from_operator else by_name[part.device].provider
            refusals = (*placed.get(said.name, ("", ()))[1], *said.refusals)
            found.append(
                NodePlacement(
                    said.name,
                    said.op,
                    part.device,
                    said.kernel,
                    provider,
                    node.origins,
                    said.post_ops,
                    refusals,
                    stops.get(said.name),
                    # A node of a composition stands for the node that was chosen.
                    next((rules[name] for name in (said.name, *node.origins[:1]) if name in rules), 0),
                    tuple(_value(name, part.graph, executable) for name in node.reads),
                    tuple(_value(name, part.graph, executable) for name in node.writes),
                )
            )
    return found


def _value(name: str, graph: Graph, executable: Executable) -> ValuePlacement:
    plan = executable.memory
    return ValuePlacement(name, graph.types[name], plan.offsets.get(plan.storage.get(name, name)))


def _wire(whole: Graph, parts: Sequence[Part], executables: Sequence[Executable], report: PlanReport) -> Plan:
    slot = {name: index for index, name in enumerate(whole.inputs)}
    steps = []
    for part, executable in zip(parts, executables, strict=True):
        for name in part.outputs:
            slot.setdefault(name, len(slot))
        reads = tuple(slot[name] for name in part.graph.inputs)
        steps.append(Step(part.device, executable, reads, tuple(slot[name] for name in part.outputs)))
    outputs = tuple(slot[name] if name in slot else whole.constants[name] for name in whole.outputs)
    types = tuple(whole.types[name].with_shape(whole.types[name].shape) for name in whole.outputs)
    return Plan(tuple(steps), len(slot), outputs, types, report)
