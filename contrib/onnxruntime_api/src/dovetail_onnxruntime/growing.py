"""Finds the caches that a decoder makes longer with each run: by the operators that continue them, whatever their names."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dovetail import Graph, Model
from dovetail.dataclass import dataclass, field
from dovetail.graph import Node
from dovetail.op import UnboundOperator
from dovetail_onnxruntime.decoder_inputs import MASK, TOKENS, mask_of, tokens_of

__all__ = ["LENGTH", "Choices", "Growing", "growing_caches"]

LENGTH = "cache_length"
"""The input of the pass `hold_caches` for the number of tokens; a model that has it already is left alone."""

_COPYING = ("Cast", "Identity")
"""Between an input, the Concat and the output: models in half precision whose inputs and outputs are float32 have a Cast."""

_GROUPED = {1: 3, 2: 4}
"""The outputs of GroupQueryAttention that continue inputs. It writes into caches that are longer than what is in use."""
_ROOM = 6
"""Its input for the length of caches, which may be more than what is in use."""


@dataclass(frozen=True)
class Growing:
    """The caches of a model: inputs and the outputs that continue them, along `axis`.

    `tokens` is the input with the new ones, `mask` that with a value for each token so far, "" without one; `counts` says that
    the ones of the mask count the tokens. `flags` are inputs that choose the branch with these outputs, and their values.
    `choices` are conditions of branches that depend on the length of the mask alone, such as of rotary embeddings for long texts.
    `renamed` has the names by which `hold_caches` knows the tokens and the mask, where the model has others.
    """

    caches: Mapping[str, str]
    axis: int
    tokens: str
    mask: str
    counts: bool
    flags: Mapping[str, bool]
    choices: "Choices | None" = None
    renamed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Choices:
    """The conditions, and the nodes that compute them from the mask's shape."""

    names: tuple[str, ...]
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class _Continued:
    """A value that a node makes longer along an axis by `rows`, in the branch that is chosen where inputs have these values."""

    past: str
    axis: int
    rows: str
    counts: bool = False
    flags: frozenset[tuple[str, bool]] = frozenset()


def growing_caches(model: Model) -> Growing | None:
    """The caches of a model with tokens, all along one axis; None for other models."""
    graph = model.graph
    continued = ((name, replace(one, past=_source(graph, one.past))) for name in graph.outputs for one in _continued(graph, name))
    found = {name: one for name, one in continued if _is_open(model, name, one)}
    kinds = {(one.axis % len(model.inputs[one.past].shape or ()), one.counts, one.flags) for one in found.values()}
    caches = {one.past: name for name, one in found.items()}
    if len(kinds) != 1 or len(caches) != len(found) or LENGTH in model.inputs:
        return None
    axis, counts, flags = kinds.pop()
    others = [name for name in model.inputs if name not in caches and name not in dict(flags)]
    mask = mask_of(model, others, counts)
    tokens = tokens_of(model, [name for name in others if name != mask], [one.rows for one in found.values()], bool(mask))
    if not tokens:
        return None
    choices = _choices(graph, mask) if mask and counts else Choices((), ())
    renamed = _renamed(model, tokens, mask)
    if choices is None or renamed is None:
        return None
    return Growing(caches, axis, tokens, mask, counts, dict(flags), choices if choices.names else None, renamed)


def _renamed(model: Model, tokens: str, mask: str) -> Mapping[str, str] | None:
    """See `Growing`; None where another input has the name."""
    found = {} if model.inputs.keys() & {*TOKENS} else {tokens: TOKENS[0]}
    if mask and mask != MASK:
        if MASK in model.inputs:
            return None
        found[mask] = MASK
    return found


def _choices(graph: Graph, mask: str) -> Choices | None:
    """The choices by the length of a mask, which has room for more tokens here; None where that length is read otherwise."""
    nodes, fixed, lengths = list[Node](), set(graph.constants), set[str]()
    for node in graph.nodes:
        kind, inputs = node.op.op_type, {*filter(None, node.inputs)}
        if kind == "Constant":
            fixed.update(node.outputs)
        elif inputs == {mask} if kind == "Shape" else inputs & lengths and inputs <= fixed | lengths and not node.op.subgraphs:
            lengths.update(node.outputs)
        else:
            continue
        nodes.append(node)
    chosen = dict[str, None]()
    for node in graph.nodes:
        if lengths.isdisjoint(node.reads) or not lengths.isdisjoint(node.outputs):
            continue
        places = [index for index, name in enumerate(node.inputs) if name in lengths]
        if node.op.op_type == "If" and {name for name in node.reads if name in lengths} == {node.inputs[0]}:
            chosen[node.inputs[0]] = None
        elif node.op.op_type != "GroupQueryAttention" or places != [_ROOM]:
            return None
    return Choices(tuple(chosen), tuple(nodes))


def _is_open(model: Model, output: str, one: _Continued) -> bool:
    declared = model.inputs.get(one.past)
    if declared is None or declared.shape is None or isinstance(declared.shape[one.axis], int):
        return False
    if model.graph.types[output].dtype is not declared.dtype:
        return False
    return dict(one.flags).keys() <= model.inputs.keys()


def _continued(graph: Graph, output: str) -> Iterator[_Continued]:
    """The values that become this output, longer by new rows."""
    node = graph.producers.get(output)
    if node is None or not isinstance(node.op, UnboundOperator):
        return
    place, raw = node.outputs.index(output), node.op.raw
    if node.op.op_type == "Concat" and len(node.inputs) == 2:
        yield _Continued(node.inputs[0], raw["axis"], node.inputs[1])
    elif node.op.op_type in _COPYING:
        yield from _continued(graph, node.inputs[0])
    elif node.op.op_type == "GroupQueryAttention" and place in _GROUPED and not raw.get("sliding_window_cache"):
        rows = node.inputs[place] or node.inputs[0]  # the query has them all where there are no keys
        yield _Continued(node.inputs[_GROUPED[place]], 2, rows, counts=True)
    for name, branch in node.op.named_subgraphs.items() if node.op.op_type == "If" else ():
        for one in _continued(branch, branch.outputs[place]):
            flags = one.flags | {(node.inputs[0], name == "then_branch")}
            yield replace(one, flags=flags)


def _source(graph: Graph, name: str) -> str:
    """The value that casts and copies have made this one of."""
    node = graph.producers.get(name)
    return name if node is None or node.op.op_type not in _COPYING else _source(graph, node.inputs[0])
