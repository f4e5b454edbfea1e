"""The pipeline: every pass of the core in the order in which they run, and where passes of plugins join in."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

from dovetail.devices.checked import ask, configurations, lowered
from dovetail.errors import PluginError, UsageError, did_you_mean
from dovetail.evaluate.inference import check_sizes
from dovetail.graph.graph import Graph
from dovetail.graph.rewriting import drop_dead_nodes
from dovetail.passes.bind import bind
from dovetail.passes.compose_in_graph import compose_in_graph
from dovetail.passes.constant_folding import fold_closed, type_and_fold
from dovetail.passes.decompose import decompose, decompose_halves, decompose_quantized
from dovetail.passes.defer import split
from dovetail.passes.drop_identities import drop_identities
from dovetail.passes.fuse_post_ops import fuse_post_ops
from dovetail.passes.graph_pass import STAGES, GraphPass, PassContext
from dovetail.passes.layout import assign_layouts
from dovetail.passes.opaque import declare, declare_shapes, pin
from dovetail.passes.unfuse_post_ops import unfuse_post_ops

__all__ = ["PASSES", "attributed_to", "pipeline"]


def _plain(function: Callable[[Graph], Graph]) -> Callable[[Graph, PassContext], Graph]:
    @functools.wraps(function)
    def run(graph: Graph, context: PassContext) -> Graph:
        return function(graph)

    return run


def _bind(graph: Graph, context: PassContext) -> Graph:
    """Replace operators that are only named by instances of their classes, found by domain, type and version."""
    return bind(graph, functools.cache(context.definitions.find))


def _declare(graph: Graph, context: PassContext) -> Graph:
    """Give operators that a device prescribes, and that have no class, one that only that device runs."""
    return declare(graph, context.definitions.find, context.devices)


def _fold_closed(graph: Graph, context: PassContext) -> Graph:
    """Compute what depends on constants alone, for all input shapes at once."""
    return fold_closed(graph, context.budget, context.limit)


def _compose_in_graph(graph: Graph, context: PassContext) -> Graph:
    """Expand operators whose composition reads values of the graph around them, such as Gradient."""
    return compose_in_graph(graph, context.limit)


def _type_and_fold(graph: Graph, context: PassContext) -> Graph:
    """Infer types and compute what is constant, in one walk; what depends on data is left for the run."""
    known, context.notes.deferred = split(type_and_fold(graph, context.budget, context.limit), context.notes.varying)
    return known


def _pin(graph: Graph, context: PassContext) -> Graph:
    """Fix nodes that a device prescribes, so that no pass merges, expands or rewrites them."""
    return pin(graph, context.devices)


def _choose_definitions(graph: Graph, context: PassContext) -> Graph:
    """Choose the definition of each node where several packages define its operator."""
    chosen, rules = context.definitions.choose(graph, context.devices)
    context.notes.rules.update(rules)
    return chosen


def _decompose_quantized(graph: Graph, context: PassContext) -> Graph:
    """Expand operators on 8-bit values with a composition, so that the passes on quantized forms see what they consist of."""
    return decompose_quantized(graph, context.keeps, context.notes.bodies)


def _decompose_halves(graph: Graph, context: PassContext) -> Graph:
    """Expand operators on halves for which the device has no kernel in float32 either, so that their parts compute in that."""
    return decompose_halves(graph, context.keeps, context.notes.bodies)


def _decompose(graph: Graph, context: PassContext) -> Graph:
    """Expand operators with a composition if the device has no kernel for them."""
    return decompose(graph, context.keeps, context.notes.bodies)


def _check_sizes(graph: Graph, context: PassContext) -> Graph:
    """Refuse values beyond the memory limit."""
    if context.limit is not None:
        check_sizes(graph, context.limit)
    return graph


def _fuse_post_ops(graph: Graph, context: PassContext) -> Graph:
    """Let nodes take over elementwise nodes that follow, as post-ops, as far as the device accepts them."""
    assert context.device is not None
    fused = fuse_post_ops(graph, functools.partial(ask, context.device))
    context.notes.stops.update(fused.stops)
    return drop_dead_nodes(fused.graph)


def _lower(graph: Graph, context: PassContext) -> Graph:
    """Run the device's own pass."""
    assert context.device is not None
    return lowered(context.device, graph)


def _assign_layouts(graph: Graph, context: PassContext) -> Graph:
    """Choose memory layouts for the least reordering, and insert Reorder nodes."""
    assert context.device is not None
    return assign_layouts(graph, functools.partial(configurations, context.device))


PASSES: tuple[GraphPass, ...] = (
    GraphPass("unfuse_post_ops", "bind", _plain(unfuse_post_ops), needs_shapes=False, essential=True),
    GraphPass("declare_opaque", "bind", _declare, needs_shapes=False, essential=True),
    GraphPass("bind", "bind", _bind, needs_shapes=False, essential=True),
    GraphPass("declare_opaque_shapes", "type", _plain(declare_shapes), essential=True),
    GraphPass("compose_in_graph", "type", _compose_in_graph, essential=True),
    GraphPass("type_and_fold", "type", _type_and_fold, essential=True, any_sizes=True),
    GraphPass("pin_opaque", "type", _pin, essential=True),
    GraphPass("drop_identities", "type", _plain(drop_identities), any_sizes=True),
    GraphPass("drop_dead_nodes", "type", _plain(drop_dead_nodes), any_sizes=True),
    GraphPass("choose_definitions", "quantize", _choose_definitions, essential=True),
    GraphPass("decompose_quantized", "quantize", _decompose_quantized, any_sizes=True),
    GraphPass("decompose_halves", "quantize", _decompose_halves, any_sizes=True),
    GraphPass("decompose", "expand", _decompose, essential=True, any_sizes=True),
    GraphPass("drop_expanded_identities", "expand", _plain(drop_identities), any_sizes=True),
    GraphPass("pin_expanded", "expand", _pin, essential=True),
    GraphPass("drop_replaced_nodes", "place", _plain(drop_dead_nodes), any_sizes=True),
    GraphPass("check_sizes", "place", _check_sizes, essential=True),
    GraphPass("fuse_post_ops", "fuse", _fuse_post_ops, any_sizes=True),
    GraphPass("lower", "layout", _lower, essential=True, any_sizes=True),
    GraphPass("assign_layouts", "layout", _assign_layouts, essential=True, any_sizes=True),
)
"""The core's passes. In each stage those of plugins run after these, in the order in which their plugins give them."""

_FOLD_CLOSED = GraphPass("fold_constants", "bind", _fold_closed, needs_shapes=False)
"""Last of stage `bind`, so that passes of plugins have seen the graph as the model has it."""


def pipeline(added: Sequence[GraphPass] = (), left_out: str = "") -> tuple[GraphPass, ...]:
    """All passes in order, those of plugins among them, without the ones that are left out.

    `left_out` has the grammar of the property `PASSES`: `-fuse_attention,-fold_pad`. Raises `UsageError` for an unknown or
    essential name and for another grammar, `PluginError` for two passes of one name.
    """
    everything = [one for stage in STAGES for one in _stage(stage, added)]
    _check_distinct(everything)
    names = _names(left_out)
    for name in names:
        _check_optional(name, everything)
    return tuple(one for one in everything if one.name not in names)


def _stage(stage: str, added: Sequence[GraphPass]) -> list[GraphPass]:
    found = [one for one in (*PASSES, *added) if one.stage == stage]
    return [*found, _FOLD_CLOSED] if stage == _FOLD_CLOSED.stage else found


def _check_distinct(passes: Sequence[GraphPass]) -> None:
    first: dict[str, GraphPass] = {}
    for one in passes:
        if (other := first.setdefault(one.name, one)) is not one:
            plugin, taken = (one, other) if one.origin else (other, one)
            package = plugin.origin.partition(" ")[0]
            raise PluginError(
                f"graph pass {one.name!r} of {plugin.origin} has the name of a pass of {taken.origin or 'the core'}",
                hint=f"report it to the authors; to go on without the package, set DOVETAIL_PLUGINS=-{package}",
            )


def _names(left_out: str) -> list[str]:
    parts = [part.strip() for part in left_out.split(",") if part.strip()]
    if not all(part.startswith("-") and len(part) > 1 for part in parts):
        raise UsageError(
            f"property PASSES is {left_out!r}", hint="write the passes to leave out, each with a minus: '-fuse_attention'"
        )
    return [part[1:] for part in parts]


def _check_optional(name: str, passes: Sequence[GraphPass]) -> None:
    known = {one.name: one for one in passes}
    if name not in known:
        raise UsageError(f"property PASSES: unknown pass {name!r}", hint=did_you_mean(name, known))
    if known[name].essential:
        optional = ", ".join(one.name for one in passes if not one.essential)
        raise UsageError(f"property PASSES: the pass {name!r} cannot be left out", hint=f"accepted: {optional}")


def attributed_to(provider: str, passes: Sequence[GraphPass]) -> tuple[GraphPass, ...]:
    """The passes of a plugin with their origin."""
    return tuple(dataclasses.replace(one, origin=provider) for one in passes)
