"""Operators that are a chain of post-ops over one of their inputs: an elementwise or binary primitive with post-ops."""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cache, lru_cache
from itertools import groupby

import numpy as np

from dovetail.device import (
    ANY,
    BYXF,
    PLAIN,
    Binary,
    DType,
    Eltwise,
    LayerConfig,
    Layout,
    PostOp,
    Reason,
    TensorType,
    TypedNode,
)
from dovetail_cpu_onednn.binding import INFERENCE, Arg, Attr, MemoryDesc
from dovetail_cpu_onednn.descriptors import describe, number_of, plain
from dovetail_cpu_onednn.kernel import (
    LOW,
    Argument,
    NodePlan,
    PrimitiveKernel,
    Refused,
    Stage,
    relaid,
    value_argument,
    when_asked,
)
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import (
    BINARY,
    LARGEST,
    Appended,
    attach,
    eltwise_kind,
    is_one_element_a_channel,
    require_no_columns,
)

__all__ = ["ElementwiseKernel"]


LOSES_NAN = frozenset({"relu", "clip", "exp", "hardsigmoid", "hardswish", "gelu_erf", "gelu_tanh", "elu", "swish"})
"""The eltwise algorithms that do not give NaN for NaN, or infinity for infinity, in oneDNN."""

SMALLEST = 1.401298464324817e-45
"""The smallest positive float32."""

SCALE = Arg.SCALES | Arg.SRC

MAX, MIN = 0x1FFF2, 0x1FFF3
"""The larger and the smaller of two numbers: of a number and itself that number, NaN and the sign of 0 too."""


class ElementwiseKernel(PrimitiveKernel):
    """An operator that declares a chain of post-ops: the first step is a primitive, the others are its post-ops."""

    name = "elementwise"
    dtypes = LOW

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        found = self._plan(node)
        if not found.is_reference or (merged := _merged(node)) == node:
            return found
        again = self._attempt(merged, self._plan)
        return again if isinstance(again, NodePlan) else found

    def _plan(self, node: TypedNode) -> NodePlan:
        chained, own = _chain_of(node)
        scaled: tuple[Argument, ...] = ()
        if isinstance(own[0], Binary) and own[0].algorithm == "rsub":
            # oneDNN subtracts the other way round only, and -(s - o) ends in a step that its cache of primitives takes for Neg.
            own, scaled = (Binary("add", own[0].operand), *own[1:]), (value_argument(SCALE, np.array([-1], np.float32)),)
        where = [node.node.inputs.index(p.operand) for p in own if not isinstance(p, Eltwise)]
        first, rest, dims = own[0], own[1:], _computed_dims(node)
        ends = (
            _argument(Arg.SRC, "input", chained, _described(node.given(chained), dims)),
            _argument(Arg.DST, "output", 0, _described(node.outputs[0], dims)),
        )
        if isinstance(first, Eltwise):
            return self._plan_eltwise(node, ends, where, first, rest)
        if not isinstance(first, Binary) or first.algorithm not in BINARY:
            raise Refused(Reason.POST_OP, f"oneDNN has no primitive for {first}")
        second = Argument(Arg.SRC_1, "input", where[0], _broadcast(node, where[0], dims))
        return self._plan_binary(node, BINARY[first.algorithm], (*ends, second, *scaled), where[1:], (), rest)

    def _plan_eltwise(
        self, node: TypedNode, ends: tuple[Argument, Argument], where: Sequence[int], first: Eltwise, rest: Sequence[PostOp]
    ) -> NodePlan:
        """The primitive eltwise has no fast implementation with post-ops; a binary primitive of equal operands has."""
        src, chained = ends[0].desc, ends[0].index
        if _is_sloped(first, node):
            # With the slope for an operand one primitive serves all slopes.
            rank = len(src.dims)
            slope = np.array(first.alpha, np.float32, ndmin=rank)
            second = Argument(Arg.SRC_1, "value", 0, _one(rank), value=slope)
            third = _argument(_LIMIT, "input", chained, src)
            limit, attr = _limit(first.alpha <= 1, src)
            if not (rest or node.node.post_ops):
                pd = library().describe("binary", BINARY["mul"], src, second.desc, ends[1].desc, attr=attr)
                return NodePlan((Stage(pd, (*ends, second, third)),))
            return self._plan_binary(node, BINARY["mul"], (*ends, second, third), where, limit, rest)
        if first == Eltwise("pow", 1.0, 3.0):
            # Two products: the primitive's powers take 12 ns a number.
            factors = [Argument(arg, "input", chained, src) for arg in (Arg.SRC_1, Arg.post_op(0, Arg.SRC_1))]
            cube: Appended = ("binary", (BINARY["mul"], src))
            return self._plan_binary(node, BINARY["mul"], (*ends, *factors), where, (cube,), rest)
        appended = eltwise_kind(first)
        if rest or node.post_ops or len(appended) > 1:
            return self._plan_binary(node, MAX, (*ends, Argument(Arg.SRC_1, "input", chained, src)), where, appended, rest)
        alg, alpha, beta = appended[0][1]
        pd = library().describe("eltwise_forward", INFERENCE, alg, src, ends[1].desc, alpha, beta)
        return NodePlan((Stage(pd, ends),))

    def _plan_binary(
        self,
        node: TypedNode,
        algorithm: int,
        arguments: Sequence[Argument],
        inside: Sequence[int],
        before: Sequence[Appended],
        rest: Sequence[PostOp],
    ) -> NodePlan:
        """The primitive over `arguments`: source, destination, second source, and what `before` reads, or a scale of the source.
        Behind it come `before`, `rest` (over inputs `inside`) and the node's post-ops.
        """
        extended = node
        if rest:
            operands = (*(node.given(i) for i in inside), *node.operands)
            extended = replace(node, node=replace(node.node, post_ops=(*rest, *node.post_ops)), operands=operands)
        chain = attach(extended, False, False, before=before, dims=_computed_dims(node))
        src, dst, second = (argument.desc for argument in arguments[:3])
        require_no_columns(dst, chain.operands)
        masks = [("scales", int(Arg.SRC), 0)] if any(one.arg == SCALE for one in arguments) else []
        pd = library().describe("binary", algorithm, src, second, dst, attr=library().attr(chain.appended, masks))
        return NodePlan((Stage(pd, (*arguments, *(_placed(a, inside) for a in chain.arguments(pd)))),))

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """Where numbers for whole channels broadcast, also with channels last; oneDNN has nothing for blocks there."""
        first = LayerConfig.elementwise(node)
        if ANY in first.outputs or self.is_guarded(node) or not _is_by_channel(node):
            return (first,)
        last = _channels_last(node)
        return first, when_asked(node, last, lambda: self._attempt(relaid(node, last), self._checked))

    def is_guarded(self, node: TypedNode) -> bool:
        return any(isinstance(p, Eltwise) and p.algorithm in LOSES_NAN and not _is_sloped(p, node) for p in _chain_of(node)[1])

    def in_place(self, node: TypedNode) -> Sequence[str]:
        known = _of_type_of_result(node)
        return (node.node.inputs[known[0] if len(known) == 1 else _chain_of(node)[0]],)


@lru_cache(512)
def _argument(arg: int, place: str, index: int, desc: MemoryDesc) -> Argument:
    """The argument; models have many nodes of the same types."""
    return Argument(arg, place, index, desc)


_LIMIT = Arg.post_op(0, Arg.SRC_1)
"""The argument of the first post-op."""


@lru_cache(512)
def _limit(is_largest: bool, desc: MemoryDesc) -> tuple[tuple[Appended, ...], Attr]:
    """The post-op that takes the larger or the smaller one of a number and the source, and the attributes with it alone."""
    limit: tuple[Appended, ...] = (("binary", (MAX if is_largest else MIN, desc)),)
    return limit, library().attr(limit)


@cache
def _one(rank: int) -> MemoryDesc:
    """A single number."""
    return plain((1,) * rank)


def _is_sloped(step: PostOp, node: TypedNode) -> bool:
    """Whether it is a ReLU with a slope that runs as the larger of s and slope * s, or the smaller one: both are NaN where s is,
    so that the data need not be searched for it. oneDNN has only its reference for that in blocks.
    """
    if not isinstance(step, Eltwise) or step.algorithm != "relu" or step.scale != 1:
        return False
    result = node.outputs[0]
    is_finite = SMALLEST <= abs(step.alpha) <= LARGEST  # 0.03 us; 0.6 as numbers of NumPy
    return is_finite and result.dtype is DType.FLOAT32 and not result.layout.block


def _merged(node: TypedNode) -> TypedNode:
    """Plain data over fewer axes: neighbours along which the same values broadcast are one.

    oneDNN has fast implementations for few ways to broadcast: [12, 128, 64] times [12, 128, 1] takes its reference, and
    [1536, 64] times [1536, 1] does not.
    """
    result, types = node.outputs[0], [t for t in (*node.inputs, *node.operands) if t is not None]
    if any(t.layout != PLAIN for t in (result, *types)):
        return node
    rank = result.rank
    shapes = [(1,) * (rank - t.rank) + t.dims for t in types]
    axes = [axis for axis in range(rank) if result.dims[axis] != 1]
    alike = groupby(axes, lambda axis: [shape[axis] == 1 for shape in shapes])
    groups = [[*group] for _, group in alike]

    def merged(tensor: TensorType) -> TensorType:
        shape = (1,) * (rank - tensor.rank) + tensor.dims
        dims = tuple(math.prod(shape[axis] for axis in group) for group in groups)
        return TensorType(tensor.dtype, dims, None if tensor.value is None else tensor.value.reshape(dims))

    inputs = tuple(t and merged(t) for t in node.inputs)
    return TypedNode(node.node, inputs, (merged(result),), tuple(merged(t) for t in node.operands))


def _is_by_channel(node: TypedNode) -> bool:
    """Whether all that broadcasts has one number for each channel, for each item of the batch too or not."""
    result = node.outputs[0].dims
    if not 3 <= len(result) <= 5:
        return False
    others = [t.dims for t in (*node.inputs, *node.operands) if t is not None and t.dims != result]
    return all(len(dims) <= len(result) and set(dims[2 - len(result) :]) <= {1} for dims in others)


def _channels_last(node: TypedNode) -> LayerConfig:
    """BYXF for all of the result's rank: numbers for whole channels are the same bytes so."""
    rank = node.outputs[0].rank

    def side(types: Sequence[TensorType | None]) -> tuple[Layout, ...]:
        return tuple(BYXF if t is not None and t.rank == rank else PLAIN for t in types)

    return LayerConfig(side(node.inputs), (BYXF,), side(node.operands))


def _placed(argument: Argument, inside: Sequence[int]) -> Argument:
    """An operand of the chain as an input of the node, one of `inside`, or as an operand of its post-ops."""
    if argument.index < len(inside):
        return replace(argument, place="input", index=inside[argument.index])
    return replace(argument, index=argument.index - len(inside))


def _computed_dims(node: TypedNode) -> tuple[int, ...] | None:
    """Batch and channels where each channel has one element and blocks do not spread them: oneDNN is right in two dimensions.

    None where the result's own dimensions serve.
    """
    result = node.outputs[0]
    return result.dims[:2] if is_one_element_a_channel(result.dims) and not result.layout.block else None


def _described(tensor: TensorType, dims: tuple[int, ...] | None) -> MemoryDesc:
    return describe(tensor) if dims is None else plain(dims, number_of(tensor.dtype))


def _broadcast(node: TypedNode, index: int, computed: tuple[int, ...] | None) -> MemoryDesc:
    tensor, result = node.given(index), node.outputs[0]
    if tensor.dims == result.dims:
        return _described(tensor, computed)
    if tensor.rank > result.rank:
        raise Refused(Reason.SHAPE, f"{tensor} for a result {result}")
    dims = (1,) * (max(1, result.rank) - tensor.rank) + tensor.dims
    return plain(dims if computed is None else dims[: len(computed)], number_of(tensor.dtype))


def _chain_of(node: TypedNode) -> tuple[int, tuple[PostOp, ...]]:
    if len(node.outputs) == 1 and node.node.outputs[0]:
        for index in _of_type_of_result(node):
            post_ops = node.op.post_ops(node.inputs, node.node.inputs, index)
            if post_ops:
                return index, post_ops
    raise Refused(Reason.OPERATOR, "not a chain of post-ops over an input of the result's type")


def _of_type_of_result(node: TypedNode) -> list[int]:
    """The inputs over which the node may be a chain."""
    dims, dtype = node.outputs[0].dims, node.outputs[0].dtype
    return [i for i, tensor in enumerate(node.inputs) if tensor is not None and tensor.dims == dims and tensor.dtype is dtype]
