"""Reverse mode: from what a value's derivatives are, those of everything that it was computed from."""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from dovetail.graph import GraphBuilder, Node
from dovetail.op import FLOATS, OperatorError
from dovetail_ops_onnx_training.replay import Recorder
from dovetail_ops_onnx_training.rules import Compose, Derivative, accepted, compose_of, derivative_of
from dovetail_ops_onnx_training.values import Value

__all__ = ["reverse"]


def reverse(g: GraphBuilder, nodes: Sequence[Node], seeds: Mapping[str, Value], leaves: AbstractSet[str]) -> dict[str, Value]:
    """The derivatives by the leaves that the seeds depend on; `seeds` are those by values that the nodes write.

    `nodes` are in an order in which every value is written before it is read. What no leaf leads to is passed over.
    Raises `OperatorError` naming the node for one without a derivative.
    """
    active = _reached(g, nodes, leaves)
    found = dict(seeds)
    for node in reversed(nodes):
        gradients = [None if name in leaves else found.get(name) for name in node.outputs]
        if any(gradients) and not active.isdisjoint(node.inputs):
            for name, gradient in zip(node.inputs, _through(g, node, gradients, active), strict=True):
                if gradient is not None and name in active:
                    found[name] = found[name] + gradient if name in found else gradient
    return {name: found[name] for name in leaves if name in found}


def _reached(g: GraphBuilder, nodes: Sequence[Node], leaves: AbstractSet[str]) -> set[str]:
    """The float values that depend on the leaves, and these."""
    active = set(leaves)
    for node in nodes:
        if not active.isdisjoint(node.reads):
            active.update(name for name in node.writes if _is_float(g, node, name))
    return active


def _is_float(g: GraphBuilder, node: Node, name: str) -> bool:
    found = g.type_of(name)
    if found is None or not found.is_static:
        raise OperatorError(f"node {node}: the shape of {name!r} depends on data; accepted on the way to 'y': shapes that do not")
    return found.dtype in FLOATS


def _through(
    g: GraphBuilder, node: Node, gradients: Sequence[Value | None], active: AbstractSet[str]
) -> tuple[Value | None, ...]:
    """The derivatives by the inputs of one node, from those by its outputs."""
    derivative, compose = derivative_of(node.op), compose_of(node.op)
    if derivative is not None:
        found = _by_rule(g, node, derivative, gradients)
    elif compose is not None:
        found = _by_composition(g, node, compose, gradients, active)
    else:
        raise OperatorError(
            f"node {node} has no derivative, and 'y' depends on it",
            hint=f"accepted: {accepted()}, operators with a composition, and classes with a method derivative(inputs, outputs, "
            "gradients); add such a class by core.add_extension",
        )
    return (*found[: len(node.inputs)], *[None] * (len(node.inputs) - len(found)))


def _by_rule(g: GraphBuilder, node: Node, rule: Derivative, gradients: Sequence[Value | None]) -> tuple[Value | None, ...]:
    inputs = [Value(g, name) if name else None for name in node.inputs]
    outputs = [Value(g, name) if name else None for name in node.outputs]
    given = rule(inputs, outputs, gradients)
    found = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    # A rule may leave out trailing inputs, and name some that the node leaves out.
    for value, gradient in zip(inputs, found, strict=False):
        if value is not None and gradient is not None and gradient.type != value.type.with_shape(value.dims):
            raise OperatorError(f"node {node}: the derivative by {value.name!r} is {gradient.type}; accepted: {value.type}")
    return found


def _by_composition(
    g: GraphBuilder, node: Node, compose: Compose, gradients: Sequence[Value | None], active: AbstractSet[str]
) -> tuple[Value | None, ...]:
    """The node's operator built once more from others, whose derivatives are taken."""
    recorder = Recorder(g)
    written = compose(recorder, node.inputs)
    seeds: dict[str, Value] = {}
    # A node may leave out trailing outputs of the composition.
    for name, gradient in zip(written, gradients, strict=False):
        if gradient is not None:
            seeds[name] = seeds[name] + gradient if name in seeds else gradient
    found = reverse(g, recorder.nodes, seeds, {name for name in node.inputs if name in active})
    # The same value may be read twice: its whole derivative counts once.
    return tuple(found.pop(name, None) for name in node.inputs)
