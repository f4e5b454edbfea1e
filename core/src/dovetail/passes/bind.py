"""Bind: look up every operator that a frontend only named, and read its attributes."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import GraphError, OperatorError
from dovetail.evaluate.context import node_context
from dovetail.graph.graph import Graph, Node, UnboundOperator
from dovetail.graph.rewriting import with_constants
from dovetail.graph.types import as_constant
from dovetail.operators.operator import Operator
from dovetail.operators.ports import check_inputs, port_of

__all__ = ["MAX_DEPTH", "Find", "bind"]

Find = Callable[[str, str, int], type[Operator]]
"""(domain, op_type, version) -> operator class; raises `UnknownOperator`."""

MAX_DEPTH = 64
"""Sub-graphs inside sub-graphs. Python's own stack sets the limit; models in use stay below five."""


def bind(graph: Graph, find: Find, depth: int = 0) -> Graph:
    """The graph with typed operators, sub-graphs included.

    An attribute that newer versions of an operator take as an input becomes a constant input (`Operator.legacy_attributes`).
    Raises `OperatorError` naming the node for an operator that is unknown or whose attributes or inputs do not fit.
    """
    if depth > MAX_DEPTH:
        raise GraphError(f"sub-graphs are nested more than {MAX_DEPTH} deep")
    nodes, constants = [], {}
    for node in graph.nodes:
        if isinstance(node.op, UnboundOperator):
            try:
                bound, added = _bind_node(node, node.op, graph, find, depth)
            except Exception:
                with node_context(node):
                    raise
            constants.update(added)
            nodes.append(bound)
        else:
            nodes.append(node)
    return with_constants(graph.replace(nodes=tuple(nodes)), constants)


def _bind_node(node: Node, op: UnboundOperator, graph: Graph, find: Find, depth: int) -> tuple[Node, dict[str, NDArray[Any]]]:
    cls = find(op.domain, op.op_type, op.version)
    translation = cls.translation(op.domain, op.op_type)
    raw = op.raw if translation is None else translation.translated_attributes(op.raw)
    attributes = {k: bind(v, find, depth + 1) if isinstance(v, Graph) else v for k, v in raw.items()}
    legacy = cls.legacy_attributes
    moved = {k: attributes.pop(k) for k in legacy if k in attributes and k not in cls.attributes} if legacy else {}
    if cls.output_count:
        attributes.setdefault(cls.output_count, len(node.outputs))
    inputs = list(node.inputs if translation is None else translation.translated_inputs(node.inputs))
    added = {}
    for attribute, value in moved.items():
        name = graph.free_name(f"{node.name}.{attribute}")
        added[name] = as_constant(_as_array(value))
        _place(inputs, [port.name for port in cls.inputs].index(cls.legacy_attributes[attribute]), name)
    while inputs and not inputs[-1] and port_of(cls.inputs, len(inputs) - 1) is None:
        inputs.pop()  # an exporter that knows a newer version of the operator leaves its further inputs out by name
    bound = cls.from_attributes(attributes)
    check_inputs(cls, [bool(name) for name in inputs])  # before passes that read them by their positions
    bound.check_outputs(len(node.outputs))
    return Node(node.name, bound, tuple(inputs), node.outputs, node.post_ops, node.origins), added


def _as_array(value: Any) -> NDArray[Any]:
    array = np.asarray(value)
    if array.dtype != np.float64:
        return array
    # An empty list has no type of its own; the attributes that may be empty are lists of axes.
    return array.astype(np.float32 if array.size else np.int64)


def _place(inputs: list[str], index: int, name: str) -> None:
    inputs += [""] * (index + 1 - len(inputs))
    if inputs[index]:
        raise OperatorError(
            f"both the attribute {name.rpartition('.')[2]!r} of older versions and the input {inputs[index]!r} are given"
        )
    inputs[index] = name
