"""The inputs of a decoder beside its caches: that with the new tokens, and the mask with a value for each token so far.

Exporters have names for them, and programs others. So the tokens are found by what the new rows of caches are computed from, and
a mask of another name by what reads it.
"""

from collections.abc import Iterator, Sequence

from dovetail import Graph, Model, TensorType
from dovetail.graph import Node

__all__ = ["MASK", "TOKENS", "mask_of", "tokens_of"]

MASK = "attention_mask"
"""The name by which the pass `hold_caches` and exporters know the mask: its zeros are padding, however it is read."""

TOKENS = ("input_ids", "decoder_input_ids", "inputs_embeds", "decoder_inputs_embeds")
"""The names by which the pass knows the tokens: [batch, tokens] or [batch, tokens, width]."""

_EACH = frozenset(
    {"Add", "And", "Cast", "Div", "Equal", "Expand", "Greater", "GreaterOrEqual", "Identity", "Less", "LessOrEqual", "Max"}
    | {"Min", "Mul", "Neg", "Not", "Or", "Reshape", "Squeeze", "Sub", "Unsqueeze", "Where"}
)
"""Operators from a mask to the scores that give a value for each key."""

_ENDS = frozenset({("Softmax", 0), ("Attention", 3), ("Shape", 0)})
"""Where that way ends: the operator, and its input."""

_COPYING = frozenset({"Cast", "Identity"})
_COUNTING = frozenset({"ReduceSum", "Shape"})
"""The readers of a mask whose ones count the tokens."""


def tokens_of(model: Model, others: Sequence[str], rows: Sequence[str], has_mask: bool) -> str:
    """The first of the `others` with the new tokens, of which the `rows` for caches are computed; "" where it is not known.

    Rows of the first layer are computed of the fewest inputs. Without a mask nothing else tells their number, so that all of
    these that may be the tokens must have as many.
    """
    producers = {name: node for graph in _graphs(model.graph) for name, node in graph.producers.items()}
    sources = min((_sources(producers, name) for name in rows), key=lambda names: len(names & {*others}))
    shapes = {name: model.inputs[name].shape or () for name in others if name in sources}
    found = [name for name, shape in shapes.items() if len(shape) > 1]
    same = len({shapes[name][1] for name in found}) == 1
    return found[0] if found and (same or has_mask) else ""


def _sources(producers: dict[str, Node], name: str) -> set[str]:
    seen, waiting = set[str](), [name]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            node = producers.get(name)
            waiting += node.reads if node is not None else ()
    return seen


def mask_of(model: Model, others: Sequence[str], counts: bool) -> str:
    """The one of the `others` with a value for each token so far, "" without one. `counts`: its ones count the tokens."""
    if MASK in model.inputs:
        return MASK if _is_long(model, MASK, others) else ""
    graphs = [*_graphs(model.graph)]
    readers = dict[str, list[tuple[Node, int]]]()
    for node in (node for graph in graphs for node in graph.nodes):
        for index, name in enumerate(node.inputs):
            readers.setdefault(name, []).append((node, index))
    given = {name for graph in graphs for name in graph.outputs}
    fits = _counts if counts else _hides
    found = [name for name in others if _is_long(model, name, others) and fits(name, readers, given)]
    return found[0] if len(found) == 1 else ""


def _is_long(model: Model, name: str, others: Sequence[str]) -> bool:
    """Whether an input [batch, length] has an open length that no other input beside the caches has."""
    declared: TensorType = model.inputs[name]
    if declared.shape is None or len(declared.shape) != 2 or isinstance(declared.shape[1], int):
        return False
    # The mask of an encoder is as long as its results.
    rest = [size for other, one in model.inputs.items() if other != name for size in one.shape or ()]
    return name in others and (declared.shape[1] is None or declared.shape[1] not in rest)


def _hides(name: str, readers: dict[str, list[tuple[Node, int]]], given: set[str]) -> bool:
    """Whether an input is combined with scores and read in no other way: what is in front of the tokens is hidden there."""
    seen, waiting, is_hidden = {name}, [name], False
    while waiting:
        name = waiting.pop()
        if name in given:
            return False
        for node, index in readers.get(name, ()):
            if (node.op.op_type, index) in _ENDS:
                is_hidden |= node.op.op_type != "Shape"
            elif node.op.op_type not in _EACH:
                return False
            else:
                waiting += [one for one in node.writes if one not in seen]
                seen.update(node.writes)
    return is_hidden


def _counts(name: str, readers: dict[str, list[tuple[Node, int]]], given: set[str]) -> bool:
    """Whether an input is summed, and read in no other way than by its length."""
    found = readers.get(name, [])
    copies = [one for node, _ in found if node.op.op_type in _COPYING for one in node.writes]
    is_plain = all(node.op.op_type in _COPYING | _COUNTING for node, _ in found)
    if name in given or not is_plain or not all(_counts(copy, readers, given) for copy in copies):
        return False
    return bool(copies) or any(node.op.op_type == "ReduceSum" for node, _ in found)


def _graphs(graph: Graph) -> Iterator[Graph]:
    """The graph and those in it."""
    yield graph
    for node in graph.nodes:
        for inner in node.op.subgraphs:
            yield from _graphs(inner)
