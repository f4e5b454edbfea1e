"""Attention: two matrix products on the heads in their places, and a softmax in place between them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, TensorType, TypedNode
from dovetail_cpu_onednn.binding import F32, INFERENCE, Alg, Arg, MemoryDesc, Stream
from dovetail_cpu_onednn.descriptors import number_of, plain, plain_strides
from dovetail_cpu_onednn.kernel import LOW, Argument, NodePlan, PrimitiveKernel, Refused, Stage, given
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import BINARY, ELTWISE, Appended
from dovetail_ops_onnx.attention import Attention_23, Sizes

_OPTIONAL = 3
"""Mask, past key, past value and lengths come after Q, K and V."""


class Heads(PrimitiveKernel):
    """Heads are read and written by strides: nothing is transposed. A work buffer holds the scores.

    A NaN or an infinity in the scores becomes NaN in its row, as it should. A row that the mask leaves no key would too, so
    then the composition runs.
    """

    name = "attention"
    dtypes = LOW

    @cached_plan
    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        op = node.op
        assert isinstance(op, Attention_23)
        s = op.sizes(given(node, 0), given(node, 1), given(node, 2))
        self._check(node, op, s)
        bias = _bias(node, op, s)
        # Numbers that are made for the node are made once, for the whole.
        chunks = _chunks(s) if bias is None or bias.content is None else [_Chunk(0, s.batch, 0, s.heads, 0, s.queries)]
        found = [_stages(node, op, s, chunk, bias) for chunk in chunks]
        largest = max(chunk.batch * chunk.heads * chunk.queries for chunk in chunks) * s.total
        sizes = [4 * largest] + [2 * largest] * (number_of(given(node, 2).dtype) != F32)
        return NodePlan(tuple(stage for stages in found for stage in stages), scratch=tuple(sizes))

    def _require(self, node: TypedNode) -> None:
        super()._require(node)
        mask = _mask(node)
        # Here, because a plan must not depend on the content of constants.
        if mask is not None and mask.value is not None and mask.rank and not mask.value.max(axis=-1).min() > -np.inf:
            raise Refused(Reason.ATTRIBUTE, "a mask that leaves a row no key")

    def _check(self, node: TypedNode, op: Attention_23, s: Sizes) -> None:
        if node.post_ops:
            raise Refused(Reason.POST_OP, "the composition, which runs for rows without a key, takes none")
        if any(t is not None for t in node.inputs[_OPTIONAL + 1 :]):
            raise Refused(Reason.OPERATOR, "a cache or lengths of samples; accepted: Q, K, V and a mask")
        if s.heads != s.kv_heads:
            raise Refused(Reason.ATTRIBUTE, f"{s.heads} query heads share {s.kv_heads} key-value heads; accepted: as many")
        if op.softcap > 0 or op.softmax_precision not in (None, DType.FLOAT32):
            raise Refused(Reason.ATTRIBUTE, "softcap or softmax_precision; accepted: none, float32")

    def is_guarded(self, node: TypedNode) -> bool:
        return _mask(node) is not None and given(node, _OPTIONAL).value is None

    def safety(self, node: TypedNode, array: Callable[[str], NDArray[Any]], stream: Stream) -> Callable[[], bool]:
        """Whether the mask leaves every row a key."""
        mask = array(node.node.inputs[_OPTIONAL])
        return lambda: bool(mask.max(axis=-1).min() > -np.inf)


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Where it begins, and how much of each it has: the part of the scores that is made at once."""

    first_batch: int
    batch: int
    first_head: int
    heads: int
    first_query: int
    queries: int


WHOLE, PART = 1 << 24, 1 << 22
"""Bytes of scores up to which they are made at once, and of the parts in which more are, which stay in a cache: 8 heads of 4,096
tokens, 40 numbers each, take 4 MB of scores for 537, and 335 ms for 358; with 1,024 tokens 20.8 for 24.1 (one thread)."""


def _chunks(s: Sizes) -> list[_Chunk]:
    """Several samples, heads of one sample, or queries of one head."""
    head = 4 * s.queries * s.total
    if s.batch * s.heads * head <= WHOLE:
        return [_Chunk(0, s.batch, 0, s.heads, 0, s.queries)]
    batches = _cuts(s.batch, PART // (s.heads * head))
    heads = _cuts(s.heads, PART // head if len(batches) == s.batch else s.heads)
    queries = _cuts(s.queries, PART // (4 * s.total) if len(heads) == s.heads else s.queries)
    return [_Chunk(*b, *h, *q) for b in batches for h in heads for q in queries]


def _cuts(count: int, most: int) -> list[tuple[int, int]]:
    """First and number of each part, of at most `most`, but at least one."""
    step = max(1, most)
    return [(first, min(step, count - first)) for first in range(0, count, step)]


def _stages(node: TypedNode, op: Attention_23, s: Sizes, chunk: _Chunk, bias: Argument | None) -> tuple[Stage, ...]:
    """The scores of a chunk, their softmax, and the product with the values."""
    lib, packed = library(), given(node, 0).rank == 3
    read = [number_of(given(node, index).dtype) for index in range(3)]
    first = chunk.first_batch, chunk.first_head, chunk.first_query
    y, y_at = _rows(packed, s, chunk, (s.queries, chunk.queries, s.v_head), node.outputs[0], first)
    q, q_at = _rows(packed, s, chunk, (s.queries, chunk.queries, s.head), given(node, 0), first)
    v, v_at = _rows(packed, s, chunk, (s.keys, s.keys, s.v_head), given(node, 2), (*first[:2], 0))
    k, k_at = _rows(packed, s, chunk, (s.keys, s.keys, s.head), given(node, 1), (*first[:2], 0), is_turned=True)
    dims = (chunk.batch, chunk.heads, chunk.queries, s.total)
    # The scores are float32; in bfloat16 the weights have a separate buffer.
    rows, weights, at = (dims[0] * dims[1] * dims[2], dims[3]), plain(dims, read[2]), int(read[2] != F32)
    softmax = lib.describe("softmax_forward", INFERENCE, Alg.SOFTMAX_ACCURATE, plain(rows), plain(rows, read[2]), 1)
    both = (Argument(Arg.SRC, "scratch", 0, plain(rows)), Argument(Arg.DST, "scratch", at, plain(rows, read[2])))
    last = lib.describe("matmul", weights, v, None, y)
    reads = (
        Argument(Arg.SRC, "scratch", at, weights),
        Argument(Arg.WEIGHTS, "input", 2, v, offset=v_at),
        Argument(Arg.DST, "output", 0, y, offset=y_at),
    )
    operands = Argument(Arg.SRC, "input", 0, q, offset=q_at), Argument(Arg.WEIGHTS, "input", 1, k, offset=k_at)
    own = None if bias is None else _part(node, bias, chunk)
    return (*_scores(op.factor(s), operands, plain(dims), own), Stage(softmax, both), Stage(last, reads))


def _scores(factor: float, operands: tuple[Argument, Argument], scores: MemoryDesc, bias: Argument | None) -> tuple[Stage, ...]:
    """The scaled product with the bias, which is part of oneDNN's fast product where possible, and added after it elsewhere."""
    lib, q, k = library(), operands[0].desc, operands[1].desc
    chain: list[Appended] = [("eltwise", (ELTWISE["linear"], factor, 0.0))]
    arguments = (*operands, Argument(Arg.DST, "scratch", 0, scores))
    if bias is None:
        return (Stage(lib.describe("matmul", q, k, None, scores, attr=lib.attr(chain)), arguments),)
    add = ("binary", (BINARY["add"], bias.desc))
    at_once = lib.describe("matmul", q, k, None, scores, attr=lib.attr([*chain, add]))
    if at_once.implementation.startswith("brg"):
        return (Stage(at_once, (*arguments, bias)),)
    product = lib.describe("matmul", q, k, None, scores, attr=lib.attr(chain))
    both = (Argument(Arg.SRC, "scratch", 0, scores), Argument(Arg.DST, "scratch", 0, scores))
    after = lib.describe("binary", BINARY["add"], scores, bias.desc, scores)
    return Stage(product, arguments), Stage(after, (*both, replace(bias, arg=Arg.SRC_1)))


def _rows(
    packed: bool,
    s: Sizes,
    chunk: _Chunk,
    sizes: tuple[int, int, int],
    tensor: TensorType,
    first: tuple[int, int, int],
    is_turned: bool = False,
) -> tuple[MemoryDesc, int]:
    """The heads [batch, heads, length, size] of a chunk by strides, or [batch, heads, size, length], and the bytes before them.

    `sizes` are the length of the tensor, that of the chunk, and the size of a head; `first` is where the chunk begins.
    """
    whole, length, size = sizes
    n = whole * size
    strides = (s.heads * n, size, s.heads * size, 1) if packed else (s.heads * n, n, size, 1)
    offset = sum(at * stride for at, stride in zip(first, strides, strict=False)) * (tensor.nbytes // tensor.size)
    dims = (chunk.batch, chunk.heads, length, size)
    if is_turned:
        dims, strides = (*dims[:2], size, length), (*strides[:2], 1, strides[2])
    return library().strided(dims, strides, number_of(tensor.dtype)), offset


def _part(node: TypedNode, bias: Argument, chunk: _Chunk) -> Argument:
    """The bias for a chunk; along axes of size 1 it is the same for all."""
    whole = bias.desc.dims
    if bias.content is not None:
        return bias
    sizes, first = (chunk.batch, chunk.heads, chunk.queries), (chunk.first_batch, chunk.first_head, chunk.first_query)
    dims = (*(1 if full == 1 else size for full, size in zip(whole, sizes, strict=False)), whole[3])
    steps = zip(whole, first, plain_strides(whole), strict=False)
    mask = given(node, _OPTIONAL)
    offset = sum(at * step for full, at, step in steps if full != 1) * (mask.nbytes // mask.size)
    return replace(bias, desc=plain(dims, bias.desc.dtype), offset=offset)


def _mask(node: TypedNode) -> Any:
    return node.inputs[_OPTIONAL] if len(node.inputs) > _OPTIONAL else None


def _hidden(op: Attention_23, s: Sizes) -> NDArray[Any]:
    """Minus infinity for the positions that a query does not see, else 0."""
    return np.where(op.visible(s), np.float32(0), np.float32(-np.inf))


def _bias(node: TypedNode, op: Attention_23, s: Sizes) -> Argument | None:
    """The numbers that are added to the scores: the mask, or that of hidden positions."""
    seen, mask = op.visible(s), _mask(node)
    arg = Arg.post_op(1, Arg.SRC_1)
    if mask is None:
        if not seen.any(axis=1).all():
            raise Refused(Reason.ATTRIBUTE, "positions without any key")
        desc = plain((1, 1, *seen.shape))
        # Made when it is wanted: the plan is kept for nodes that are alike.
        return None if seen.all() else Argument(arg, "input", 0, desc, content=partial(_hidden, op, s))
    if not seen.all():
        raise Refused(Reason.ATTRIBUTE, "is_causal or a window together with a mask")
    if not mask.rank or mask.dims[-1] != s.total:
        raise Refused(Reason.SHAPE, f"mask {mask}; accepted: [..., {s.total}]")
    return Argument(arg, "input", _OPTIONAL, plain((1,) * (4 - mask.rank) + mask.dims, number_of(mask.dtype)))


KERNELS = (Heads(),)
