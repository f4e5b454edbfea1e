"""The plan of a node, its primitives with their constants, and what other sizes take over of them."""

from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace
from typing import cast

from dovetail.dataclass import dataclass
from dovetail.device import (
    Graph,
    Node,
    OutOfMemory,
    TypedNode,
    phase,
)
from dovetail.errors import CompileError
from dovetail_cpu_onednn.binding import Primitive, Unimplemented
from dovetail_cpu_onednn.constants import ConstantMemory, Found, brought, is_moved
from dovetail_cpu_onednn.kernel import NodePlan, PrimitiveKernel, Refused, Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.making import Making
from dovetail_cpu_onednn.memory import naming_out_of_memory, refused
from dovetail_cpu_onednn.node_plans import is_cached
from dovetail_cpu_onednn.placement import Decided, Placement
from dovetail_cpu_onednn.shared_constants import Constant, Referable, SharedConstants

__all__ = [
    "Planned",
    "Prepared",
    "are_before",
    "copied",
    "decided",
    "plan_node",
    "planned_as",
    "prepared_as",
    "prepared_with",
    "relabelled",
    "sharing_of",
    "stage_constants",
]


@dataclass(frozen=True, slots=True, eq=False)
class Prepared(Referable):
    """A stage with its primitive, the constants that were brought into its layouts, and the size of its scratchpad."""

    stage: Stage
    primitive: Primitive
    constants: Mapping[int, Constant]
    scratchpad: int


@dataclass(frozen=True, slots=True, eq=False)
class Planned:
    """The plan of a node, and those of its stages that run where the result shares the memory of these operands.

    `scratch` has the bytes of its work buffers: of the primitives' own, which take turns in one, and of the plan's. `spare` is
    the node with the rows that the primitives touch, where these are more than it has.
    """

    sharing: tuple[bool, ...]
    plan: NodePlan
    stages: tuple[Stage, ...]
    scratch: tuple[int, ...]
    spare: TypedNode | None = None

    def fits(self, node: TypedNode, graph: Graph, storage: Mapping[str, str]) -> bool:
        """Whether the plan serves a node that is alike, or other sizes of the same: its spare rows have to lie in the arena."""
        return self.spare is None or _are_inside(node, self.spare, graph, storage)


def plan_node(
    placement: Placement,
    storage: Mapping[str, str],
    helper: Making,
    alike: MutableMapping[object, Planned],
    found: NodePlan | None,
    graph: Graph | None,
) -> Planned:
    """The plan of a node, for as many threads as the calling one plans with. The helper makes its primitives.

    `alike` are the plans of the groups of nodes, `found` is the plan by which the kernel accepted this one, `graph` the one whose
    nodes may have spare rows.
    """
    sharing = sharing_of(placement, storage)
    key = None if placement.group is None else (placement.group, sharing)
    known = None if key is None else alike.get(key)
    if known is not None and (graph is None or known.fits(placement.node, graph, storage)):
        return known
    kernel = cast("PrimitiveKernel", placement.kernel)
    spare = None if graph is None else kernel.with_spare_rows(placement.node)
    if spare is not None and graph is not None and not _are_inside(placement.node, spare, graph, storage):
        spare = None
    try:  # as `naming_out_of_memory`, in half the time
        with phase(placement.node.name, "prepare", kernel=placement.label):
            plan = _plan(kernel, spare or placement.node, any(sharing), found)
    except (MemoryError, OutOfMemory) as error:
        raise refused(error, placement.node.node) from error
    stages = plan.stages
    if sharing:  # without copies of operands in whose memory the result is written
        stages = tuple([s for s in stages if s.unless_shared is None or not sharing[s.unless_shared]])
    for stage in stages:
        if stage.desc.primitive is None:
            helper.add((placement, stages))
            break
    size = 0
    for stage in plan.stages:
        size = max(size, stage.desc.scratchpad[1])
    planned = Planned(sharing, plan, stages, (size, *plan.scratch) if size or plan.scratch else (), spare)
    if key is not None and is_cached(kernel):
        alike[key] = planned
    return planned


def _are_inside(node: TypedNode, spare: TypedNode, graph: Graph, storage: Mapping[str, str]) -> bool:
    from dovetail_cpu_onednn.spare_rows import are_inside

    return are_inside(node, spare, graph, storage)


def sharing_of(placement: Placement, storage: Mapping[str, str]) -> tuple[bool, ...]:
    """For each operand of the post-ops whether the result is written in its memory."""
    node = placement.node.node
    return tuple([storage[name] == storage[node.outputs[0]] for name in node.operands]) if node.post_ops else ()


def _plan(kernel: PrimitiveKernel, node: TypedNode, shared: bool, found: NodePlan | None) -> NodePlan:
    try:
        return kernel.final(node, shared, found)
    except Refused as answer:
        raise CompileError(f"ONEDNN, node {node.node}: {answer.refusal}") from None
    except Unimplemented as error:
        raise CompileError(f"ONEDNN, node {node.node}: {error.message}") from error


def planned_as(parts: Sequence[Prepared]) -> Planned:
    """The plan of a node that runs in parts, whose primitives these are."""
    stages = tuple([one.stage for one in parts])
    size = max([one.scratchpad for one in parts], default=0)
    return Planned((), NodePlan(stages), stages, (size,) if size else ())


def decided(placement: Placement, planned: Planned | None, in_place: Sequence[str]) -> Decided:
    """The decision about a node, for comparison with other sizes: that of before, where it is the same."""
    name, is_reference = ("", False) if planned is None else (planned.plan.name, planned.plan.is_reference)
    known = placement.earlier
    if known is not None and known.implementation == name and known.in_place == in_place:
        return known
    return Decided(placement.kernel, placement.label, placement.refusals, name, is_reference, in_place)


def relabelled(placement: Placement, planned: Planned | None, found: NodePlan | None) -> Placement:
    """The placement with the name of the implementation that oneDNN has for these sizes and layouts.

    `found` is the plan by which the kernel accepted the node in plain types. Raises `CompileError` where oneDNN has only a slow
    implementation, unlike in other sizes.
    """
    earlier, plan = placement.earlier, None if planned is None else planned.plan
    known = earlier.implementation if earlier is not None else None if found is None or plan is found else found.name
    if plan is None or known is None or plan.name == known:
        return placement
    if earlier is not None and (
        (plan.is_reference and not earlier.is_reference) or ("gemm" in plan.name and "gemm" not in known)
    ):
        raise CompileError(f"ONEDNN has only {plan.name} for node {placement.node.node} in these sizes")
    assert isinstance(placement.kernel, PrimitiveKernel)
    return replace(placement, label=placement.kernel.label(plan.name, placement.node))


def copied(node: Node, planned: Planned) -> list[str]:
    """The inputs that a node has copied, if they are constants: none that it reads in place."""
    reads = [a for stage in planned.stages for a in stage.arguments if a.place == "input"]
    in_place = {a.index for a in reads if not is_moved(a)}
    return [node.inputs[index] for index in {a.index for a in reads} - in_place]


def are_before(found: Sequence[Found], before: Sequence[Mapping[int, Constant]]) -> bool:
    """Whether the constants of a node are those of other sizes. Then the other nodes of its group that had its plan there have
    theirs, too: that the node of each name has the same constants was compared (see `repeated`).
    """
    return len(found) == len(before) and all(not new and now == last for (now, new), last in zip(found, before, strict=True))


def prepared_as(stages: Sequence[Prepared], before: Sequence[Prepared]) -> tuple[Prepared, ...]:
    """The stages of another node of the group, with constants of before."""
    pairs = zip(stages, before, strict=True)
    return tuple([Prepared(one.stage, one.primitive, known.constants, one.scratchpad) for one, known in pairs])


def stage_constants(
    placement: Placement, found: Sequence[Found], memory: ConstantMemory, shared: SharedConstants
) -> list[Mapping[int, Constant]]:
    """The constants of each stage of a node, those that are missing brought into its layouts."""
    if not any(missing for _, missing in found):
        return [constants for constants, _ in found]
    node = placement.node
    library().plan_threads(placement.threads)
    with naming_out_of_memory(node.node), phase(node.name, "prepare", what="the constants"):
        return [constants | {a.arg: brought(node, a, memory, shared) for a in missing} for constants, missing in found]


def prepared_with(stages: Sequence[Stage], constants: Sequence[Mapping[int, Constant]]) -> tuple[Prepared, ...]:
    """The stages of a node, whose primitives have been made, with their constants."""
    lib = library()
    pairs = zip(stages, constants, strict=True)
    return tuple([Prepared(stage, lib.primitive(stage.desc), one, lib.scratchpad(stage.desc)) for stage, one in pairs])
