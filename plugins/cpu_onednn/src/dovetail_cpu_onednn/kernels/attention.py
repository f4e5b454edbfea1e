"""Attention: two matrix products on the heads in their places, and a softmax in place between them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.device import DType, Reason, TypedNode
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
        lib, packed = library(), given(node, 0).rank == 3
        read = [number_of(given(node, index).dtype) for index in range(3)]
        y = _rows(packed, s, s.queries, s.v_head, number_of(node.outputs[0].dtype))
        q, v = _rows(packed, s, s.queries, s.head, read[0]), _rows(packed, s, s.keys, s.v_head, read[2])
        dims = (s.batch, s.heads, s.queries, s.total)
        stages = _scores(op.factor(s), (q, _columns(packed, s, read[1]), plain(dims)), _bias(node, op, s))
        # The scores are float32; in bfloat16 the weights have a separate buffer.
        rows, weights, at = (dims[0] * dims[1] * dims[2], dims[3]), plain(dims, read[2]), int(read[2] != F32)
        softmax = lib.describe("softmax_forward", INFERENCE, Alg.SOFTMAX_ACCURATE, plain(rows), plain(rows, read[2]), 1)
        both = (Argument(Arg.SRC, "scratch", 0, plain(rows)), Argument(Arg.DST, "scratch", at, plain(rows, read[2])))
        last = lib.describe("matmul", weights, v, None, y)
        reads = (
            Argument(Arg.SRC, "scratch", at, weights),
            Argument(Arg.WEIGHTS, "input", 2, v),
            Argument(Arg.DST, "output", 0, y),
        )
        sizes = tuple(lib.nbytes(desc) for desc in (plain(dims), weights)[: at + 1])
        return NodePlan((*stages, Stage(softmax, both), Stage(last, reads)), scratch=sizes)

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


def _scores(factor: float, operands: tuple[MemoryDesc, MemoryDesc, MemoryDesc], bias: Argument | None) -> tuple[Stage, ...]:
    """The scaled product with the bias, which is part of oneDNN's fast product where possible, and added after it elsewhere."""
    lib, (q, k, scores) = library(), operands
    chain: list[Appended] = [("eltwise", (ELTWISE["linear"], factor, 0.0))]
    arguments = (
        Argument(Arg.SRC, "input", 0, q),
        Argument(Arg.WEIGHTS, "input", 1, k),
        Argument(Arg.DST, "scratch", 0, scores),
    )
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


def _rows(packed: bool, s: Sizes, length: int, size: int, dtype: int) -> MemoryDesc:
    """The heads [batch, heads, length, size] by strides."""
    dims = (s.batch, s.heads, length, size)
    strides = (length * s.heads * size, size, s.heads * size, 1) if packed else plain_strides(dims)
    return library().strided(dims, strides, dtype)


def _columns(packed: bool, s: Sizes, dtype: int) -> MemoryDesc:
    """The keys transposed, [batch, heads, size, length], by strides."""
    dims, n = (s.batch, s.heads, s.head, s.keys), s.keys * s.head
    strides = (s.heads * n, s.head, 1, s.heads * s.head) if packed else (s.heads * n, n, 1, s.head)
    return library().strided(dims, strides, dtype)


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
