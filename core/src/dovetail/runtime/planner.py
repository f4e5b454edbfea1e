"""From a model and input shapes to a plan: the passes in their order, then one executable for each part."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from numpy.typing import NDArray

from dovetail._opaque import PinnedOperator
from dovetail.device import REFERENCE_KERNEL, Device, Executable, Reason, Refusal, Reorder, TypedNode
from dovetail.errors import CompileError, OutOfMemory, UnsupportedNode
from dovetail.graph.model import Graph, Node
from dovetail.graph.types import TensorType
from dovetail.op import Operator
from dovetail.passes.bind import Find, bind
from dovetail.passes.compose_in_graph import compose_in_graph
from dovetail.passes.constant_folding import FOLD_BUDGET, check_sizes, fold_constants, type_and_fold
from dovetail.passes.decompose import decompose
from dovetail.passes.defer import Continuation, split
from dovetail.passes.eliminate import drop_dead_nodes, drop_identities
from dovetail.passes.fold_affine import fold_affine
from dovetail.passes.fold_pad import fold_pad
from dovetail.passes.fuse_activations import fuse_activations
from dovetail.passes.fuse_attention import fuse_attention
from dovetail.passes.fuse_normalizations import fuse_normalizations
from dovetail.passes.fuse_post_ops import fuse_post_ops
from dovetail.passes.fuse_quantized import fuse_quantized, hold_quantized
from dovetail.passes.layout import assign_layouts
from dovetail.passes.opaque import declare, pin
from dovetail.passes.partition import Part, partition
from dovetail.passes.simplify_transposes import simplify_transposes
from dovetail.passes.unfuse_post_ops import unfuse_post_ops
from dovetail.plugins.rules import PREFERRED
from dovetail.runtime.deferred import Body, HostStep, Signature, Source, Tail, typed_inputs
from dovetail.runtime.dispatch import Dispatch
from dovetail.runtime.options import REFERENCE_DEVICE, CompileOptions
from dovetail.runtime.plan_cache import PlanCache
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

    Values between steps live in slots: first the inputs, then what steps write. An output is a slot or a constant. With a
    `tail` whose rest is still to be planned, `outputs` are the inputs of that rest, and `types` is empty.
    """

    steps: tuple[Step, ...]
    inputs: int
    slots: int
    outputs: tuple[Source, ...]
    types: tuple[TensorType, ...]
    report: PlanReport
    tail: Tail | None = None

    @property
    def following(self) -> "Plan | None":
        """The plan that was made last for what this one leaves to be planned."""
        return None if self.tail is None or self.tail.rest is None else self.tail.rest.latest

    def close(self) -> None:
        """Free the executables, those of following plans and sub-graphs too."""
        waiting = [self]
        while waiting:
            plan = waiting.pop()
            for step in plan.steps:
                step.executable.close()
            if plan.tail is not None:
                bodies = [body.plans for step in plan.tail.steps for body in step.bodies]
                waiting += [p for cache in (*bodies, *([plan.tail.rest] if plan.tail.rest else [])) for p in cache.clear()]


def analyze(
    graph: Graph, find: Find, limit: int | None = None, devices: Sequence[Device] = (), budget: int = FOLD_BUDGET
) -> tuple[Graph, Continuation | None]:
    """The graph bound, typed, folded, and without dead nodes; apart from it what can be planned only when data is there.

    `budget` is that of `type_and_fold`.

    All inputs must have static types, or be sequences or optionals. An operator that no class defines is an error, unless one of
    the devices has the user's kernel for it.
    """
    declared = declare(unfuse_post_ops(graph), find, devices)
    bound = compose_in_graph(bind(declared, find), limit)
    known, continuation = split(type_and_fold(hold_quantized(bound), budget, limit))
    return drop_dead_nodes(drop_identities(pin(known, devices))), continuation


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

    What can be planned only when data is there becomes the plan's tail. Raises `OperatorError` and its kin for a bad graph,
    `UnsupportedNode` for a node that no target accepts, `CompileError` for what goes wrong on a device.
    """
    started = time.perf_counter()
    devices = [target.device for target in targets]
    analyzed, continuation = analyze(graph, dispatch.find, options.MEMORY_LIMIT, devices)
    if continuation is not None:
        _require_host(continuation, targets)
    whole, rules = optimise(analyzed, dispatch, targets, options, extra_passes)
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
    executables = _compile(parts, by_name, options.MEMORY_LIMIT)
    seconds = {"passes": passed - started, "compile": time.perf_counter() - passed}
    nodes = tuple(_placements(parts, executables, by_name, placed, stops, rules, provider_of))
    memory: dict[str, int] = {}
    for part, executable in zip(parts, executables, strict=True):
        memory[part.device] = memory.get(part.device, 0) + executable.memory.peak
    reorders = sum(isinstance(node.op, Reorder) for part in parts for node in part.graph.nodes)
    plan = _wire(whole, parts, executables, PlanReport(nodes, len(parts), memory, seconds, reorders))
    if continuation is None:
        return plan

    def later(inner: Graph) -> PlanCache[Signature, Plan]:
        def made(key: Signature) -> Plan:
            return make_plan(typed_inputs(inner, key), dispatch, targets, options, provider_of, extra_passes)

        return PlanCache(made, options.PLAN_CACHE)

    return _with_tail(plan, continuation, later, options.MEMORY_LIMIT, provider_of)


def _require_host(continuation: Continuation, targets: Sequence[Target]) -> None:
    if not any(target.name == REFERENCE_DEVICE for target in targets):
        node = continuation.ready[0]
        raise UnsupportedNode(
            f"no device runs node {node}: {Refusal(Reason.DYNAMIC, 'its output shapes depend on data, or it runs sub-graphs')}",
            hint=f"let FALLBACK be True: {REFERENCE_DEVICE} runs it",
        )


def _with_tail(
    plan: Plan,
    continuation: Continuation,
    later: Callable[[Graph], PlanCache[Signature, "Plan"]],
    limit: int,
    provider_of: Callable[[type[Operator]], str],
) -> Plan:
    """The plan, whose outputs are the values that live on, going on with what follows."""
    sources: dict[str, Source] = {**continuation.constants, **dict(zip(continuation.live, plan.outputs, strict=True)), "": None}
    slots, steps = plan.slots, []
    for node in continuation.ready:
        writes = tuple(range(slots, slots + len(node.writes)))
        slots += len(writes)
        bodies = tuple(_body(graph, continuation.constants, sources, later) for graph in node.op.subgraphs)
        steps.append(HostStep(node, tuple(sources[name] for name in node.inputs), writes, bodies, limit))
        sources.update(zip(node.writes, writes, strict=True))
    rest = continuation.rest
    wanted = rest.inputs if rest.nodes else rest.outputs
    tail = Tail(tuple(steps), later(rest) if rest.nodes else None)
    report = replace(
        plan.report,
        nodes=(*plan.report.nodes, *(_on_host(node, provider_of(type(node.op))) for node in continuation.ready)),
        deferred=len(rest.nodes),
    )
    return replace(plan, slots=slots, outputs=tuple(sources[n] for n in wanted), types=(), report=report, tail=tail)


def _body(
    graph: Graph,
    constants: Mapping[str, NDArray[Any]],
    sources: Mapping[str, Source],
    later: Callable[[Graph], PlanCache[Signature, "Plan"]],
) -> Body:
    """A sub-graph as a graph of its own: what it reads from outside are further inputs, or constants."""
    known = {name: constants[name] for name in graph.captures if name in constants}
    captures = tuple(name for name in graph.captures if name not in known)
    types = {**graph.types, **{name: TensorType.of(array, known=True) for name, array in known.items()}}
    whole = graph.replace(inputs=(*graph.inputs, *captures), constants={**graph.constants, **known}, types=types)
    return Body(graph, later(whole), tuple(sources[name] for name in captures))


def _on_host(node: Node, provider: str) -> NodePlacement:
    kernel = "control flow" if node.op.has_control() else REFERENCE_KERNEL
    return NodePlacement(node.name, node.op.key, REFERENCE_DEVICE, kernel, provider, node.origins)


def optimise(
    graph: Graph, dispatch: Dispatch, targets: Sequence[Target], options: CompileOptions, extra_passes: Sequence[Pass]
) -> tuple[Graph, Mapping[str, int]]:
    """What `analyze` gave as the graph that is placed on devices, and the rule that chose the class of a node among several.

    Compositions are expanded where the first target has no kernel for them; batch norms are folded.
    """

    def keeps(node: Node, inside: Graph) -> bool:
        answer = targets[0].device.supports(TypedNode.of(node, inside))
        return not isinstance(answer, Refusal) and answer.kernel != REFERENCE_KERNEL

    graph, rules = dispatch.choose(graph, targets)
    graph = drop_identities(decompose(fuse_quantized(graph, keeps), keeps))
    graph = pin(graph, [target.device for target in targets])  # what compositions have brought
    rules = {**rules, **dict.fromkeys((n.name for n in graph.nodes if isinstance(n.op, PinnedOperator)), PREFERRED)}
    graph = fuse_normalizations(fuse_activations(fold_affine(fold_pad(graph)), keeps), keeps)
    graph = simplify_transposes(fuse_attention(graph, keeps), keeps)
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


def _compile(parts: Sequence[Part], by_name: Mapping[str, Target], limit: int) -> list[Executable]:
    done: list[Executable] = []
    try:
        for part in parts:
            target = by_name[part.device]
            done.append(target.device.compile(part.graph, target.options))
            _check_peak(part, done[-1].memory.peak, limit)
    except BaseException:
        for executable in done:
            executable.close()
        raise
    return done


def _check_peak(part: Part, peak: int, limit: int) -> None:
    """Raise `OutOfMemory` when the values of one request, work buffers included, need more than `limit` bytes together."""
    if peak > limit:
        node = max(part.graph.nodes, key=lambda n: sum(part.graph.types[name].nbytes for name in n.writes))
        raise OutOfMemory(
            f"a request needs {peak:,} bytes on {part.device}, the most for the result of node {node}; the limit is {limit:,}",
            hint="raise it with the property MEMORY_LIMIT (bytes) if the machine has that much",
        )


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
    return Plan(tuple(steps), len(whole.inputs), len(slot), outputs, types, report)
