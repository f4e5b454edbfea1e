"""The graphs that a model's plans are made of: with input shapes, and for shapes that grow."""

from collections.abc import Callable, Mapping

from dovetail.graph.graph import Graph
from dovetail.graph.model import types_with_inputs
from dovetail.graph.types import CONTAINERS, TensorType
from dovetail.planning.any_shapes import GROWING, AnyShapes
from dovetail.planning.plan import Plan, Signature
from dovetail.planning.planner import Planner, Prepared
from dovetail.runtime.inputs import Shapes

__all__ = ["growing", "specialised", "without_growing_states"]


def without_growing_states(graph: Graph) -> Graph:
    """The graph whose states of open shapes are plain inputs and outputs, which requests carry on: no device keeps those."""
    return graph.replace(states={name: index for name, index in graph.states.items() if graph.types[name].is_static})


def growing(
    planner: Callable[[], Planner], prepared: Prepared, recorded: Callable[[Callable[[], Plan]], Plan]
) -> Callable[[Shapes, Mapping[Shapes, Plan]], Plan | None]:
    """Gives the plan of a model for further shapes, where those of its inputs grow: None for others."""
    found: list[AnyShapes | None] = []

    def key(given: Shapes) -> Signature:
        dtypes = [prepared.graph.types[name].dtype for name in prepared.graph.inputs]
        return tuple([(dtype, shape or ()) for dtype, shape in zip(dtypes, given, strict=True)])

    def instead(shapes: Shapes, plans: Mapping[Shapes, Plan]) -> Plan | None:
        if not found:
            found.append(planner().for_any_shapes(prepared.graph, None, recorded))
        any_shapes = found[0]
        if any_shapes is None or None in shapes:
            return None
        new, latest = key(shapes), [*plans.items()][-GROWING:]
        return any_shapes.serving(new) or any_shapes(new, {key(one): plan for one, plan in latest})

    return instead


def specialised(graph: Graph, shapes: Shapes | None) -> Graph:
    """The graph with static input types; open dimensions become 1 when no shapes are given."""
    given = {}
    for index, name in enumerate(graph.inputs):
        declared = graph.types[name]
        shape = None if shapes is None else shapes[index]
        if shape is not None:
            given[name] = TensorType(declared.dtype, shape)
        elif not declared.is_static and not isinstance(declared, CONTAINERS):
            given[name] = declared.with_shape(tuple(d if isinstance(d, int) else 1 for d in declared.shape or ()))
    return graph.replace(types=types_with_inputs(graph, given))
