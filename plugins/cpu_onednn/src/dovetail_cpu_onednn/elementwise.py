"""Operators that are a chain of post-ops over one of their inputs: an elementwise or binary primitive with post-ops."""

from collections.abc import Sequence
from dataclasses import replace

from dovetail.device import (
    ANY,
    BYXF,
    PLAIN,
    Binary,
    Eltwise,
    LayerConfig,
    Layout,
    PostOp,
    Reason,
    TensorType,
    TypedNode,
)
from dovetail_cpu_onednn.binding import INFERENCE, Arg, MemoryDesc
from dovetail_cpu_onednn.descriptors import describe, number_of, plain
from dovetail_cpu_onednn.kernel import LOW, Argument, NodePlan, PrimitiveKernel, Refused, Stage, given, relaid, when_asked
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import BINARY, attach, eltwise_kind, is_one_element_a_channel

__all__ = ["ElementwiseKernel"]


LOSES_NAN = frozenset({"relu", "clip", "exp", "hardsigmoid", "hardswish", "gelu_erf", "gelu_tanh", "elu", "swish"})
"""The eltwise algorithms that do not give NaN for NaN, or infinity for infinity, in oneDNN."""


class ElementwiseKernel(PrimitiveKernel):
    """An operator that declares a chain of post-ops: the first step is a primitive, the others are its post-ops."""

    name = "elementwise"
    dtypes = LOW

    def plan(self, node: TypedNode, free: bool, shared: bool) -> NodePlan:
        chained, own = _chain_of(node)
        if isinstance(own[0], Binary) and own[0].algorithm == "rsub":
            # oneDNN subtracts the other way round only.
            own = (Binary("sub", own[0].operand), Eltwise("linear", -1.0), *own[1:])
        names = [p.operand for p in own if not isinstance(p, Eltwise)]
        first, rest = own[0], own[1:]
        if isinstance(first, Eltwise):
            head, *others = eltwise_kind(first)
            if others:
                raise Refused(Reason.POST_OP, "eltwise with a scale")
            return self._plan(node, chained, names, rest, "eltwise_forward", head[1])
        if not isinstance(first, Binary) or first.algorithm not in BINARY:
            raise Refused(Reason.POST_OP, f"oneDNN has no primitive for {first}")
        return self._plan(node, chained, names, rest, "binary", (BINARY[first.algorithm],))

    def _plan(
        self, node: TypedNode, chained: int, names: Sequence[str], rest: Sequence[PostOp], primitive: str, args: Sequence[object]
    ) -> NodePlan:
        """The primitive over input `chained`; `names` are the inputs that its own chain reads, first the binary's."""
        where = [node.node.inputs.index(name) for name in names]
        extended = node
        if rest:
            operands = (*(given(node, i) for i in where[primitive == "binary" :]), *node.operands)
            extended = replace(node, node=replace(node.node, post_ops=(*rest, *node.post_ops)), operands=operands)
        dims = _computed_dims(node)
        src, dst = (_described(t, dims) for t in (given(node, chained), node.outputs[0]))
        chain = attach(extended, False, False, dims=dims)
        arguments = [Argument(Arg.SRC, "input", chained, src), Argument(Arg.DST, "output", 0, dst)]
        if primitive == "binary":
            other = _broadcast(node, where[0], dims)
            pd = library().describe("binary", *args, src, other, dst, attr=chain.attr)
            arguments.append(Argument(Arg.SRC_1, "input", where[0], other))
        else:
            alg, alpha, beta = args
            pd = library().describe(primitive, INFERENCE, alg, src, dst, alpha, beta, attr=chain.attr)
        inside = len(where) - (primitive == "binary")
        reads = [_placed(a, where[primitive == "binary" :], inside) for a in chain.arguments(pd)]
        return NodePlan((Stage(pd, (*arguments, *reads)),))

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        """Where numbers for whole channels broadcast, also with channels last; oneDNN has nothing for blocks there."""
        first = LayerConfig.elementwise(node)
        if ANY in first.outputs or self.is_guarded(node) or not _is_by_channel(node):
            return (first,)
        last = _channels_last(node)
        return first, when_asked(node, last, lambda: self._attempt(relaid(node, last), self._checked))

    def is_guarded(self, node: TypedNode) -> bool:
        return any(isinstance(p, Eltwise) and p.algorithm in LOSES_NAN for p in _chain_of(node)[1])

    def in_place(self, node: TypedNode) -> Sequence[str]:
        return (node.node.inputs[_chain_of(node)[0]],)


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


def _placed(argument: Argument, where: Sequence[int], inside: int) -> Argument:
    """An operand of the chain as an input of the node, or as an operand of its post-ops."""
    if argument.index < inside:
        return replace(argument, place="input", index=where[argument.index])
    return replace(argument, index=argument.index - inside)


def _computed_dims(node: TypedNode) -> tuple[int, ...] | None:
    """Batch and channels where each channel has one element and blocks do not spread them: oneDNN is right in two dimensions.

    None where the result's own dimensions serve.
    """
    result = node.outputs[0]
    return result.dims[:2] if is_one_element_a_channel(result.dims) and not result.layout.block else None


def _described(tensor: TensorType, dims: tuple[int, ...] | None) -> MemoryDesc:
    return describe(tensor) if dims is None else plain(dims, number_of(tensor.dtype))


def _broadcast(node: TypedNode, index: int, computed: tuple[int, ...] | None) -> MemoryDesc:
    tensor, result = given(node, index), node.outputs[0]
    if tensor.dims == result.dims:
        return _described(tensor, computed)
    if tensor.rank > result.rank:
        raise Refused(Reason.SHAPE, f"{tensor} for a result {result}")
    dims = (1,) * (max(1, result.rank) - tensor.rank) + tensor.dims
    return plain(dims if computed is None else dims[: len(computed)], number_of(tensor.dtype))


def _chain_of(node: TypedNode) -> tuple[int, tuple[PostOp, ...]]:
    if len(node.outputs) == 1 and node.node.outputs[0]:
        for index, tensor in enumerate(node.inputs):
            if tensor is not None and tensor.dims == node.outputs[0].dims and tensor.dtype is node.outputs[0].dtype:
                post_ops = node.op.post_ops(node.inputs, node.node.inputs, index)
                if post_ops:
                    return index, post_ops
    raise Refused(Reason.OPERATOR, "not a chain of post-ops over an input of the result's type")
