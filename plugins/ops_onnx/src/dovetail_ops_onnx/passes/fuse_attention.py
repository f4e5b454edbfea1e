"""Recognise attention as frameworks export it: products, scale, mask and softmax become the operator Attention."""

import dataclasses
import functools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph import AbstractOperator, Graph, Node, TensorType
from dovetail.passes import represented_by
from dovetail_ops_onnx._axes import broadcasts_to
from dovetail_ops_onnx.attention import Attention, Attention_23
from dovetail_ops_onnx.div import Div
from dovetail_ops_onnx.mul import Mul
from dovetail_ops_onnx.passes._patterns import (
    FUSED_TYPES,
    Keeps,
    Match,
    Op,
    Pattern,
    Replacement,
    Rule,
    Scalar,
    Var,
    rewrite,
    scalar_of,
)
from dovetail_ops_onnx.passes._stacks import Stacked, part_of
from dovetail_ops_onnx.reshape import Reshape
from dovetail_ops_onnx.slice import Slice

__all__ = ["fuse_attention"]

_BATCHED = (0, 1, 3, 2, 4)

MOST_MASKED = 2**22
"""Elements of a mask that is made of two: 16 MB of float32."""


def fuse_attention(graph: Graph, keeps: Keeps) -> Graph:
    """The graph with softmax(scale * Q K' + mask) V as one node where the device has a kernel for it.

    Recognised are, for float32 and float16: any scale or division by a number of Q, of K' and of their product; a mask that
    is added, before or after that, and broadcasts to the scores; a softmax over the keys. Where the heads are split off and
    joined by reshapes and transposes on all sides, these go into the node, and into an Attention that the model has itself;
    else Q, K and V keep their four dimensions. Windows in a dimension of their own become batches, and Q, K and V of one
    stack its columns. Needs types. The nodes that only led to the result are dead afterwards.

    For a query whose mask is minus infinity throughout the exported graph gives NaN, and Attention zeros. Where the mask is
    boolean, PyTorch's exporter puts zeros for weights that are NaN, which is left out here: NaN of Q and K stays NaN.
    """
    return rewrite(graph, _rules(), keeps)


@functools.cache
def _rules() -> tuple[Rule, ...]:
    keys = Op("Transpose", Var("k"), where=_is((0, 1, 3, 2)))
    repeated = Op("Transpose", _repeated("k"), where=_is((0, 1, 3, 2)))
    native = Op("Attention", _split("q"), _split("k"), _split("v"), more=True)
    return (
        Rule("Reshape", _joined(_summed(_split("q"), _split_keys(), _split("v"))), _packed),
        Rule("Reshape", _joined(native), _packed_again),
        Rule("Reshape", _joined(_summed(Stacked("q"), _stacked_keys(), Stacked("v"))), _unstacked),
        Rule("Reshape", _batched(_summed(_split("q", _BATCHED), _batched_keys(), _split("v", _BATCHED), axis=4)), _merged),
        Rule("Reshape", _joined(_summed(_turned("q"), _turned("k", (0, 2, 3, 1)), _turned("v"))), _viewed),
        Rule("MatMul", _summed(Var("q"), repeated, _repeated("v")), _shared),
        Rule("MatMul", _summed(Var("q"), keys, Var("v")), _apart),
        Rule("Attention", Op("Attention", Var("q"), _repeated("k"), _repeated("v"), more=True), _shared_again),
        Rule("MatMul", _summed(Var("q"), _turned_flat(Var("flat k")), Var("v")), _flat),
    )


def _joined(heads: Pattern) -> Pattern:
    """[batch, heads, length, size] as [batch, length, heads * size]."""
    return Op("Reshape", Op("Transpose", heads, where=_is((0, 2, 1, 3))), Var("joined shape"))


def _turned_flat(keys: Pattern) -> Pattern:
    """[batch * heads, length, size] as [batch, heads, size, length]."""
    return Op("Reshape", Op("Transpose", keys, where=_is((0, 2, 1))), Var("turned shape"))


def _batched(heads: Pattern) -> Pattern:
    """[batch, windows, heads, length, size] as [batch, windows, length, heads * size]."""
    return Op("Reshape", Op("Transpose", heads, where=_is(_BATCHED)), Var("joined shape"))


def _summed(q: Pattern, keys: Pattern, v: Pattern, axis: int = 3) -> Pattern:
    """softmax(scale * q @ keys + mask) @ v, perhaps with another mask for windows that are a part of the batch."""
    scores = _scaled(Op("MatMul", _scaled(q, "q"), _scaled(keys, "k")), "qk")
    total = Op("Add", scores, Var("mask"))
    masked = scores | total
    windows = Op("Add", Op("Reshape", masked, Var("windows shape")), Var("windows mask"))
    # Relative positions make a mask that is scaled with the product.
    whole = scores | _scaled(total, "sum") | Op("Reshape", windows, Var("whole shape"))
    weights = Op("Softmax", whole, where=lambda op: op.axis in (-1, axis))
    guarded = Op("Where", Op("IsNaN", weights), Scalar("no weight"), weights)
    return Op("MatMul", weights | guarded, v)


def _scaled(value: Pattern, name: str) -> Pattern:
    # An unscaled value comes last: it would leave the scale outside.
    return Op("Mul", value, Scalar(f"times {name}")) | Op("Div", value, Scalar(f"over {name}")) | value


def _split(name: str, perm: tuple[int, ...] = (0, 2, 1, 3)) -> Pattern:
    """[batch, length, heads * size] as [batch, heads, length, size]; with another order perhaps of more batches."""
    return Op("Transpose", Op("Reshape", Var(name), Var(f"{name} shape")), where=_is(perm))


def _turned(name: str, perm: tuple[int, ...] = (0, 2, 1, 3)) -> Pattern:
    """[batch, length, heads, size] with the heads first."""
    return Op("Transpose", Var(name), where=_is(perm))


def _repeated(name: str) -> Pattern:
    """[batch, heads, length, size] with each head several times."""
    apart = Op("Expand", Op("Unsqueeze", Var(name), Var(f"{name} axis")), Var(f"{name} wide shape"))
    return Op("Reshape", apart, Var(f"{name} shape"))


def _split_keys() -> Pattern:
    """[batch, length, heads * size] as [batch, heads, size, length]."""
    split = Op("Reshape", Var("k"), Var("k shape"))
    at_once = Op("Transpose", split, where=_is((0, 2, 3, 1)))
    heads = Op("Transpose", split, where=_is((0, 2, 1, 3)))
    return at_once | Op("Transpose", heads, where=_is((0, 1, 3, 2))) | _turned_flat(Op("Reshape", heads, Var("flat shape")))


def _stacked_keys() -> Pattern:
    """A part of a stack as [batch, heads, size, length]."""
    return Op("Transpose", _scaled(Stacked("k"), "k"), where=_is((0, 1, 3, 2)))


def _batched_keys() -> Pattern:
    """[batch, windows, length, heads * size] as [batch, windows, heads, size, length]."""
    heads = _scaled(_split("k", _BATCHED), "k")
    return _split("k", (0, 1, 3, 4, 2)) | Op("Transpose", heads, where=_is((0, 1, 2, 4, 3)))


def _is(perm: tuple[int, ...]) -> "functools.partial[bool]":
    return functools.partial(_permutes, perm)


def _permutes(perm: tuple[int, ...], op: AbstractOperator) -> bool:
    return getattr(op, "perm", None) == perm


def _packed(graph: Graph, match: Match) -> Replacement | None:
    """Attention over [batch, length, heads * size]."""
    scores = _scores(graph, match)
    q, k, v = (graph.types[match.values[name]] for name in "qkv")
    result = graph.types[match.nodes[0].outputs[0]]
    if scores is None or not q.rank == k.rank == v.rank == result.rank == 3:
        return None
    batch, heads, queries, keys = scores.dims
    # The reshapes may have split or joined other dimensions than those that the operator does.
    if q.dims[:2] != (batch, queries) or k.dims != (batch, keys, q.dims[2]) or v.dims[:2] != (batch, keys):
        return None
    if q.dims[2] % heads or v.dims[2] % heads or result.dims != (batch, queries, v.dims[2]):
        return None
    if not _turns_whole_heads(graph, match, scores):
        return None
    return _replacement(graph, match, (match.values["k"],), heads)


def _unstacked(graph: Graph, match: Match) -> Replacement | None:
    """Attention over columns of the values that are reshaped to stacks."""
    scores = _scores(graph, match)
    result = graph.types[match.nodes[0].outputs[0]]
    if scores is None or result.rank != 3:
        return None
    batch, heads, queries, keys = scores.dims
    last, values, slices = match.nodes[0].name, dict(match.values), []
    bounds: dict[str, NDArray[Any]] = {}
    for name, length in zip("qkv", (queries, keys, keys), strict=True):
        part, tensor = part_of(graph, match.values[name]), graph.types[match.values[name]]
        if part is None or tensor.dims[:3] != (batch, heads, length):
            return None
        values[name] = graph.free_name(f"{last}.{name}:0")
        names = [graph.free_name(f"{last}.{name}.{kind}") for kind in ("starts", "ends", "axes")]
        bounds |= {key: np.asarray([n], np.int64) for key, n in zip(names, (part.first, part.end, 2), strict=True)}
        node = Node(graph.free_name(f"{last}.{name}"), Slice(), (part.source, *names), (values[name],))
        slices.append((node, tensor.with_shape((batch, length, part.end - part.first))))
    if result.dims != (batch, queries, slices[2][1].dims[2]):
        return None
    found = _replacement(graph, Match(values, match.nodes), (values["k"],), heads)
    return found and dataclasses.replace(found, constants={**found.constants, **bounds}, before=(*found.before, *slices))


def _merged(graph: Graph, match: Match) -> Replacement | None:
    """Attention over [batch * windows, length, heads * size], and the result as [batch, windows, length, heads * size]."""
    scores = _scores(graph, match, rank=5)
    q, k, v = given = [graph.types[match.values[name]] for name in "qkv"]
    result = graph.types[match.nodes[0].outputs[0]]
    if scores is None or not q.rank == k.rank == v.rank == result.rank == 4:
        return None
    outer, (heads, queries, keys) = scores.dims[:2], scores.dims[2:]
    if q.dims[:3] != (*outer, queries) or k.dims != (*outer, keys, q.dims[3]) or v.dims[:3] != (*outer, keys):
        return None
    if q.dims[3] % heads or v.dims[3] % heads or result.dims != (*outer, queries, v.dims[3]):
        return None
    mask = graph.types[match.values["mask"]].dims if "mask" in match.values else ()
    if len(mask) > 4 or (len(mask) == 4 and mask[0] != 1 and outer[0] != 1):
        return None
    last, values, before, shapes = match.nodes[0].name, dict(match.values), [], {}
    for name, tensor in zip("qkv", given, strict=True):
        whole = tensor.with_shape((math.prod(outer), *tensor.dims[2:]))
        view = _view(graph, f"{last}.{name}", match.values[name])
        values[name], shapes[view.inputs[1]] = view.outputs[0], np.asarray(whole.dims, np.int64)
        before.append((view, whole))
    found = _replacement(graph, Match(values, match.nodes), (values["k"],), heads)
    if found is None:
        return None
    origins = represented_by(*match.nodes)
    name, value, shape = (graph.free_name(f"{last}.{end}") for end in ("attention", "attention:0", "shape"))
    attention = Node(name, found.op, found.inputs, (value,), (), origins)
    before += found.before
    before.append((attention, result.with_shape((math.prod(outer), *result.dims[2:]))))
    shapes[shape] = np.asarray(result.dims, np.int64)
    return Replacement(Reshape(allowzero=True), (value, shape), {**found.constants, **shapes}, tuple(before))


def _view(graph: Graph, name: str, source: str) -> Node:
    """A Reshape of this name, whose shape is another new value."""
    shape, value = graph.free_name(f"{name}.shape"), graph.free_name(f"{name}:0")
    return Node(graph.free_name(name), Reshape(allowzero=True), (source, shape), (value,))


def _viewed(graph: Graph, match: Match) -> Replacement | None:
    """Attention over views [batch, length, heads * size] of [batch, length, heads, size]."""
    scores = _scores(graph, match)
    q, k, v = given = [graph.types[match.values[name]] for name in "qkv"]
    if scores is None or not q.rank == k.rank == v.rank == 4:
        return None
    batch, heads, queries, keys = scores.dims
    if q.dims[:3] != (batch, queries, heads) or {k.dims[:3], v.dims[:3]} != {(batch, keys, heads)}:
        return None
    if graph.types[match.nodes[0].outputs[0]].dims != (batch, queries, heads * v.dims[3]):
        return None
    last, views, shapes = match.nodes[0].name, [], {}
    for name, tensor in zip("qkv", given, strict=True):
        dims = (*tensor.dims[:2], heads * tensor.dims[3])
        view = _view(graph, f"{last}.{name}", match.values[name])
        shapes[view.inputs[1]] = np.asarray(dims, np.int64)
        views.append((view, tensor.with_shape(dims)))
    values = {**match.values, **{name: view.outputs[0] for name, (view, _) in zip("qkv", views, strict=True)}}
    found = _replacement(graph, Match(values, match.nodes), (values["k"],), heads)
    return found and dataclasses.replace(found, constants={**found.constants, **shapes}, before=(*found.before, *views))


def _turns_whole_heads(graph: Graph, match: Match, scores: TensorType) -> bool:
    """Where keys are turned as three dimensions, whether these are [batch * heads, length, size]."""
    turned = (graph.types[node.inputs[0]].dims for node in match.nodes if _permutes((0, 2, 1), node.op))
    return all(dims[:2] == (scores.dims[0] * scores.dims[1], scores.dims[3]) for dims in turned)


def _packed_again(graph: Graph, match: Match) -> Replacement | None:
    """Attention over [batch, heads, length, size] as one over [batch, length, heads * size]."""
    node = next(node for node in match.nodes if isinstance(node.op, Attention_23))
    q, k, v = (graph.types[match.values[name]] for name in "qkv")
    result, apart = graph.types[match.nodes[0].outputs[0]], [graph.types[name] for name in node.inputs[:3]]
    if not q.rank == k.rank == v.rank == result.rank == 3 or not isinstance(node.op, Attention_23):
        return None
    for packed, heads in zip((q, k, v), apart, strict=True):
        batch, count, length, size = heads.dims
        if packed.dims != (batch, length, count * size):
            return None
    if result.dims != (*q.dims[:2], apart[0].dims[1] * apart[2].dims[3]):
        return None
    op = dataclasses.replace(node.op, q_num_heads=apart[0].dims[1], kv_num_heads=apart[1].dims[1])
    return Replacement(op, (*(match.values[name] for name in "qkv"), *node.inputs[3:]))


def _flat(graph: Graph, match: Match) -> Replacement | None:
    """Attention whose keys are [batch * heads, length, size] before they are turned: they get a view of four dimensions."""
    scores = _scores(graph, match)
    if scores is None or not _turns_whole_heads(graph, match, scores):
        return None
    name = match.values["flat k"]
    size = graph.types[name].dims[2]
    k = graph.types[name].with_shape((*scores.dims[:2], scores.dims[3], size))
    if not all(graph.types[match.values[n]].rank == 4 and graph.types[match.values[n]].dims[:2] == k.dims[:2] for n in "qv"):
        return None
    dims = np.asarray(k.dims, np.int64)
    view = _view(graph, f"{match.nodes[0].name}.keys", name)
    found = _replacement(graph, match, (view.outputs[0],), None)
    return found and dataclasses.replace(
        found, constants={**found.constants, view.inputs[1]: dims}, before=(*found.before, (view, k))
    )


def _apart(graph: Graph, match: Match) -> Replacement | None:
    """Attention over [batch, heads, length, size]."""
    scores = _scores(graph, match)
    q, k, v = (graph.types[match.values[name]] for name in "qkv")
    if scores is None or not q.rank == k.rank == v.rank == 4:
        return None
    if q.dims[:2] != scores.dims[:2] or k.dims[:2] != scores.dims[:2] or v.dims[:2] != scores.dims[:2]:
        return None
    return _replacement(graph, match, (match.values["k"],), None)


def _shared(graph: Graph, match: Match) -> Replacement | None:
    """Attention whose heads of queries share those of keys and values, which were repeated for them."""
    scores = _scores(graph, match)
    q, k, v = (graph.types[match.values[name]] for name in "qkv")
    if scores is None or not q.rank == k.rank == v.rank == 4 or q.dims[:2] != scores.dims[:2]:
        return None
    if k.dims[:3] != v.dims[:3] or k.dims[2] != scores.dims[3] or not _repeats_heads(graph, match, scores.dims[1]):
        return None
    return _replacement(graph, match, (match.values["k"],), None)


def _shared_again(graph: Graph, match: Match) -> Replacement | None:
    """The same for an Attention of the model."""
    node = match.nodes[0]
    q, k, v = (graph.types[match.values[name]] for name in "qkv")
    if not isinstance(node.op, Attention_23) or not q.rank == k.rank == v.rank == 4 or any(node.inputs[4:6]):
        return None
    if not _repeats_heads(graph, match, q.dims[1]):
        return None
    return Replacement(node.op, (*(match.values[name] for name in "qkv"), *node.inputs[3:]))


def _repeats_heads(graph: Graph, match: Match, heads: int) -> bool:
    """Whether keys and values, [batch, fewer heads, length, size], have each head as often in a row as that gives `heads`."""
    for name in "kv":
        batch, count, length, size = graph.types[match.values[name]].dims
        if not count or heads % count:
            return False
        value, repeats = match.values[name], heads // count
        for dims in ((batch, count, 1, length, size), (batch, count, repeats, length, size), (batch, heads, length, size)):
            value = next(node.outputs[0] for node in match.nodes if node.inputs[0] == value)
            if graph.types[value].dims != dims:
                return False
    return True


def _scores(graph: Graph, match: Match, rank: int = 4) -> TensorType | None:
    """The type of the scores, which so many dimensions and one type throughout make fit."""
    softmax = next(node for node in match.nodes if node.op.key == "Softmax")
    if "no weight" in match.values and scalar_of(graph, match.values["no weight"]) != 0:
        return None
    scores = graph.types[softmax.outputs[0]]
    product = next(node for node in match.nodes[match.nodes.index(softmax) :] if node.op.key == "MatMul")
    if scores.rank != rank or scores.dtype not in FUSED_TYPES or graph.types[product.outputs[0]] != scores:
        return None
    mask = graph.types[match.values["mask"]] if "mask" in match.values else None
    if mask is not None and (mask.dtype is not scores.dtype or mask.rank < 1 or mask.dims[-1] != scores.dims[-1]):
        return None
    return scores if mask is None or broadcasts_to(mask.dims, scores.dims) else None


def _replacement(graph: Graph, match: Match, keys: tuple[str, ...], heads: int | None) -> Replacement | None:
    factor = 1.0
    for name, value in match.values.items():
        size = scalar_of(graph, value) or 0.0
        if name.startswith("times "):
            factor *= size
        elif name.startswith("over "):
            factor = factor / size if size else 0.0
    if not factor:
        return None
    mask = [match.values["mask"]] if "mask" in match.values else []
    constants: dict[str, NDArray[Any]] = {}
    before: tuple[tuple[Node, TensorType], ...] = ()
    if mask and not {"times sum", "over sum"}.isdisjoint(match.values):
        name, product = (graph.free_name(f"{match.nodes[0].name}.{end}") for end in ("mask", "mask:0"))
        times = match.values.get("times sum")
        scale = times or match.values["over sum"]
        scaled = Node(name, Mul() if times else Div(), (mask[0], scale), (product,))
        before, mask = ((scaled, _unknown(graph.types[mask[0]])),), [product]
    if "windows mask" in match.values:
        joined = _joined_masks(graph, match)
        if joined is None:
            return None
        mask = [graph.free_name(f"{match.nodes[0].name}.mask")]
        constants[mask[0]] = joined
    inputs = (match.values["q"], *keys, match.values["v"], *mask)
    return Replacement(Attention(scale=factor, q_num_heads=heads, kv_num_heads=heads), inputs, constants, before)


def _unknown(tensor: TensorType) -> TensorType:
    return TensorType(tensor.dtype, tensor.shape)


def _joined_masks(graph: Graph, match: Match) -> NDArray[Any] | None:
    """The sum of the masks, in the four dimensions of scores [images * windows, heads, queries, keys]; one is of
    [1, windows, 1, queries, keys], as Swin has it. None where they are not constants or the sum has more than `MOST_MASKED`
    elements.
    """
    softmax = next(node for node in match.nodes if node.op.key == "Softmax")
    scores = graph.types[softmax.outputs[0]].dims
    windows = graph.constants.get(match.values["windows mask"])
    other: NDArray[Any] | None = np.zeros(())
    apart = graph.types[next(node for node in match.nodes if match.values["windows mask"] in node.inputs).outputs[0]].dims
    if "mask" in match.values:
        other = graph.constants.get(match.values["mask"])
    if windows is None or other is None or math.prod(scores) > MOST_MASKED or len(apart) != 5:
        return None
    images, count = apart[:2]
    if apart[2:] != scores[1:] or windows.shape != (1, count, 1, *scores[2:]) or images * count != scores[0]:
        return None
    tiled = np.tile(windows.reshape(count, 1, *scores[2:]), (images, 1, 1, 1))
    with np.errstate(over="ignore"):
        joined: NDArray[Any] = np.add(tiled, other, dtype=windows.dtype)
    return joined
