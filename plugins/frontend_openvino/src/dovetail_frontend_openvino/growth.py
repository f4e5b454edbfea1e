"""Finds how the variables of a decoder grow, as optimum-intel and openvino-genai write them, by the operators around them."""

from collections.abc import Sequence
from dataclasses import dataclass

from dovetail.frontend import Graph, Grown, Growth, Node, Shape, UnboundOperator

__all__ = ["Variable", "growth"]

_TOKENS = ("input_ids", "inputs_embeds")
"""The names of the input with the new tokens: [batch, tokens] or [batch, tokens, width]."""
_MASK, _MASK_RANK = "attention_mask", 2
_CACHE_RANK = 3
"""The fewest dimensions of a cache."""


@dataclass(frozen=True)
class Variable:
    """The input that holds a variable, the value in use, which is its first one or that of the input, and the next one."""

    state: str
    value: str
    first: str
    next: str


@dataclass(frozen=True)
class _Joined:
    """How a variable grows, along which axis, and the input with the order of the texts, "" without one."""

    grown: Grown
    axis: int
    order: str


def growth(graph: Graph, variables: Sequence[Variable]) -> Growth | None:
    """The growth where a Concat joins new rows to each variable, which is empty at first, all along one axis; else None.

    A Gather may bring the texts into another order before that.
    """
    joined = [_joined(graph, one) for one in variables]
    kinds = {(one.axis, one.order) for one in joined if one is not None}
    tokens = next((name for name in _TOKENS if len(_shape(graph, name)) > 1), "")
    if len(kinds) != 1 or None in joined or not tokens:
        return None
    ((axis, order),) = kinds
    states = {one.state: found.grown for one, found in zip(variables, joined, strict=True) if found is not None}
    return Growth(states, axis, tokens, _MASK if len(_shape(graph, _MASK)) == _MASK_RANK else "", order)


def _joined(graph: Graph, one: Variable) -> _Joined | None:
    concat, dims = graph.producers.get(one.next), _shape(graph, one.state)
    if concat is None or concat.op.op_type != "Concat" or len(concat.inputs) != len(("past", "new")) or len(dims) < _CACHE_RANK:
        return None
    axis, order, read = _attribute(concat, "axis") % len(dims), "", concat.inputs[0]
    gather = graph.producers.get(read)
    if gather is not None and gather.op.op_type == "Gather" and gather.inputs[0] == one.value and not _attribute(gather, "axis"):
        order = gather.inputs[1]
    is_read = read == one.value or (order in graph.inputs and len(_shape(graph, order)) == 1)
    are_open = dims[0] is None and dims[axis] is None and dims.count(None) == len(("batch", "rows"))
    if not axis or not is_read or not are_open or not _is_empty(graph, one.first, axis):
        return None
    return _Joined(Grown(read, one.next), axis, order)


def _is_empty(graph: Graph, value: str, axis: int) -> bool:
    """Whether the value is broadcast to a shape that is 0 along the axis."""
    expand = graph.producers.get(value)
    shape = graph.producers.get(expand.inputs[1]) if expand is not None and expand.op.op_type == "Expand" else None
    if shape is None or shape.op.op_type != "Concat" or len(shape.inputs) <= axis:
        return False
    sizes = [graph.constants.get(name) for name in shape.inputs[: axis + 1]]
    one_each = all(size.shape == (1,) for size in sizes if size is not None)  # only the batch is computed
    return one_each and sizes.count(None) <= 1 and sizes[axis] is not None and not sizes[axis].any()  # type: ignore[union-attr]


def _shape(graph: Graph, name: str) -> Shape:
    return (graph.types[name].shape or ()) if name in graph.inputs else ()


def _attribute(node: Node, name: str) -> int:
    return int(node.op.raw.get(name, 0)) if isinstance(node.op, UnboundOperator) else 0
