"""Attention: two matrix products on the heads in their places, and a softmax in place between them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail.device import DType, Reason, TypedNode
from dovetail_cpu_onednn.binding import F32, INFERENCE, Alg, Arg, MemoryDesc, Stream
from dovetail_cpu_onednn.descriptors import number_of, plain, plain_strides
from dovetail_cpu_onednn.kernel import LOW, Argument, NodePlan, PrimitiveKernel, Refused, Stage
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.node_plans import cached_plan
from dovetail_cpu_onednn.post_ops import BINARY, Appended, times
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
        s = op.sizes(node.given(0), node.given(1), node.given(2))
        self._check(node, op, s)
        bias = _bias(node, op, s)
        # Numbers that are made for the node are made once, for the whole.
        chunks = _chunks(s) if bias is None or bias.content is None else [_Chunk(0, s.batch, 0, s.heads, 0, s.queries)]
        largest = max(chunk.batch * chunk.heads * chunk.queries for chunk in chunks) * s.total
        scratch = [4 * largest] + [2 * largest] * (number_of(node.given(2).dtype) != F32)
        heads = _heads(node, s)
        if not heads[0].is_packed or chunks[0].heads == s.heads:
            stages = [stage for chunk in chunks for stage in _stages(node, op, s, heads, chunk, bias)]
            return NodePlan(tuple(stages), scratch=tuple(scratch))
        # oneDNN's fast product refuses some of the heads that lie side by side.
        apart = tuple(one.apart(len(scratch) + index) for index, one in enumerate(heads))
        stages = [stage for chunk in chunks for stage in _stages(node, op, s, apart, chunk, bias)]
        reads, writes = [_copy(*pair) for pair in zip(heads[:3], apart[:3], strict=True)], _copy(apart[3], heads[3])
        return NodePlan((*reads, *stages, writes), scratch=(*scratch, *(one.nbytes for one in apart)))

    def _require(self, node: TypedNode) -> None:
        super()._require(node)
        mask = node.optional(_OPTIONAL)
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
        return node.optional(_OPTIONAL) is not None and node.given(_OPTIONAL).value is None

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
    """Several samples, heads of one sample, or queries of one head, as much as a part for every two threads.

    In parts of 4 MB the 8 heads of 4,096 tokens take 16 threads 75 ms, in parts of 32 MB 48.
    """
    head, most = 4 * s.queries * s.total, PART * max(1, library().planned_threads // 2)
    if s.batch * s.heads * head <= max(WHOLE, most):
        return [_Chunk(0, s.batch, 0, s.heads, 0, s.queries)]
    batches = _cuts(s.batch, most // (s.heads * head))
    heads = _cuts(s.heads, most // head if len(batches) == s.batch else s.heads)
    queries = _cuts(s.queries, most // (4 * s.total) if len(heads) == s.heads else s.queries)
    return [_Chunk(*b, *h, *q) for b in batches for h in heads for q in queries]


def _cuts(count: int, most: int) -> list[tuple[int, int]]:
    """First and number of each part, of at most `most`, but at least one."""
    step = max(1, most)
    return [(first, min(step, count - first)) for first in range(0, count, step)]


@dataclass(frozen=True, slots=True)
class _Heads:
    """The heads [batch, heads, length, size] of a value in memory, or of a copy in a work buffer.

    `is_packed`: those of a position lie side by side, as in [batch, length, heads * size].
    """

    place: str
    index: int
    dtype: int
    itemsize: int
    dims: tuple[int, int, int, int]
    is_packed: bool

    @property
    def nbytes(self) -> int:
        return self.itemsize * prod(self.dims)

    def apart(self, index: int) -> "_Heads":
        """Their copy in work buffer `index`, one head behind the other."""
        return replace(self, place="scratch", index=index, is_packed=False)

    def whole(self, arg: int) -> Argument:
        """The argument of a primitive that takes all."""
        return self.part(arg, (0, 0, 0), self.dims[:3])

    def part(self, arg: int, first: tuple[int, int, int], count: tuple[int, int, int], is_turned: bool = False) -> Argument:
        """The argument of a primitive that takes `count` samples, heads and positions from `first` on; as [..., size, length]."""
        _, heads, length, size = self.dims
        strides = (heads * length * size, *((size, heads * size) if self.is_packed else (length * size, size)), 1)
        offset = sum(at * stride for at, stride in zip(first, strides, strict=False)) * self.itemsize
        # oneDNN's fast product refuses gaps between samples and heads, also where there is one of them.
        span = count[2] * strides[2]
        of_head = strides[1] if count[1] > 1 else span
        of_sample = strides[0] if count[0] > 1 else max(span, count[1] * of_head)
        dims, strides = (*count, size), (of_sample, of_head, *strides[2:])
        if is_turned:
            dims, strides = (*dims[:2], dims[3], dims[2]), (*strides[:2], strides[3], strides[2])
        return Argument(arg, self.place, self.index, library().strided(dims, strides, self.dtype), offset=offset)


def _heads(node: TypedNode, s: Sizes) -> tuple[_Heads, ...]:
    """Of Q, K, V and Y."""
    found = []
    for place, index, tensor, length, size in (
        ("input", 0, node.given(0), s.queries, s.head),
        ("input", 1, node.given(1), s.keys, s.head),
        ("input", 2, node.given(2), s.keys, s.v_head),
        ("output", 0, node.outputs[0], s.queries, s.v_head),
    ):
        dims = s.batch, s.heads, length, size
        found.append(_Heads(place, index, number_of(tensor.dtype), tensor.dtype.itemsize, dims, node.given(0).rank == 3))
    return tuple(found)


def _copy(src: _Heads, dst: _Heads) -> Stage:
    read, written = src.whole(Arg.SRC), dst.whole(Arg.DST)
    return Stage(library().describe_reorder(read.desc, written.desc), (read, written))


def _stages(
    node: TypedNode, op: Attention_23, s: Sizes, heads: tuple[_Heads, ...], chunk: _Chunk, bias: Argument | None
) -> tuple[Stage, ...]:
    """The scores of a chunk, their softmax, and the product with the values."""
    lib, (q, k, v, y) = library(), heads
    queries = (chunk.first_batch, chunk.first_head, chunk.first_query), (chunk.batch, chunk.heads, chunk.queries)
    keys = (*queries[0][:2], 0), (chunk.batch, chunk.heads, s.keys)
    dims = (chunk.batch, chunk.heads, chunk.queries, s.total)
    # The scores are float32; in bfloat16 the weights have a separate buffer.
    rows, weights, at = (dims[0] * dims[1] * dims[2], dims[3]), plain(dims, v.dtype), int(v.dtype != F32)
    softmax = lib.describe("softmax_forward", INFERENCE, Alg.SOFTMAX_ACCURATE, plain(rows), plain(rows, v.dtype), 1)
    both = (Argument(Arg.SRC, "scratch", 0, plain(rows)), Argument(Arg.DST, "scratch", at, plain(rows, v.dtype)))
    reads = (Argument(Arg.SRC, "scratch", at, weights), v.part(Arg.WEIGHTS, *keys), y.part(Arg.DST, *queries))
    last = lib.describe("matmul", weights, reads[1].desc, None, reads[2].desc)
    operands = q.part(Arg.SRC, *queries), k.part(Arg.WEIGHTS, *keys, is_turned=True)
    own = None if bias is None else _part(node, bias, chunk)
    return (*_scores(op.factor(s), operands, plain(dims), own), Stage(softmax, both), Stage(last, reads))


def _scores(factor: float, operands: tuple[Argument, Argument], scores: MemoryDesc, bias: Argument | None) -> tuple[Stage, ...]:
    """The scaled product with the bias, which is part of oneDNN's fast product where possible, and added after it elsewhere."""
    lib, q, k = library(), operands[0].desc, operands[1].desc
    chain: list[Appended] = [times(factor)]
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


def _part(node: TypedNode, bias: Argument, chunk: _Chunk) -> Argument:
    """The bias for a chunk; along axes of size 1 it is the same for all."""
    whole = bias.desc.dims
    if bias.content is not None:
        return bias
    sizes, first = (chunk.batch, chunk.heads, chunk.queries), (chunk.first_batch, chunk.first_head, chunk.first_query)
    dims = (*(1 if full == 1 else size for full, size in zip(whole, sizes, strict=False)), whole[3])
    steps = zip(whole, first, plain_strides(whole), strict=False)
    mask = node.given(_OPTIONAL)
    offset = sum(at * step for full, at, step in steps if full != 1) * (mask.nbytes // mask.size)
    return replace(bias, desc=plain(dims, bias.desc.dtype), offset=offset)


def _hidden(op: Attention_23, s: Sizes) -> NDArray[Any]:
    """Minus infinity for the positions that a query does not see, else 0."""
    return np.where(op.visible(s), np.float32(0), np.float32(-np.inf))


def _bias(node: TypedNode, op: Attention_23, s: Sizes) -> Argument | None:
    """The numbers that are added to the scores: the mask, or that of hidden positions."""
    sees_all, mask = op.sees_all(s), node.optional(_OPTIONAL)
    arg = Arg.post_op(1, Arg.SRC_1)
    if mask is None:
        if sees_all:
            return None
        if not op.visible(s).any(axis=1).all():
            raise Refused(Reason.ATTRIBUTE, "positions without any key")
        # Made when it is wanted: the plan is kept for nodes that are alike.
        return Argument(arg, "input", 0, plain((1, 1, s.queries, s.total)), content=partial(_hidden, op, s))
    if not sees_all:
        raise Refused(Reason.ATTRIBUTE, "is_causal or a window together with a mask")
    if not mask.rank or mask.dims[-1] != s.total:
        raise Refused(Reason.SHAPE, f"mask {mask}; accepted: [..., {s.total}]")
    return Argument(arg, "input", _OPTIONAL, plain((1,) * (4 - mask.rank) + mask.dims, number_of(mask.dtype)))


KERNELS = (Heads(),)
