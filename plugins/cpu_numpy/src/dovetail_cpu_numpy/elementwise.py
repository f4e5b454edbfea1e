"""Operators that are a chain of post-ops over one of their inputs."""

from collections.abc import Iterable, Sequence

from dovetail.dataclass import dataclass
from dovetail.device import Eltwise, PostOp, Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch, Spec
from dovetail_cpu_numpy.post_ops import bind_chain, chain_scratch, refuse_result

__all__ = ["ChainKernel"]


@dataclass(frozen=True, slots=True)
class _Chain:
    """An operator as post-ops over its input `chained`; `operands` are the inputs that they read."""

    chained: int
    post_ops: tuple[PostOp, ...]
    operands: tuple[int, ...]


class ChainKernel(NumpyKernel):
    """An operator that declares a chain of post-ops (`Operator.post_ops`)."""

    name = "post_ops"
    elementwise = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        chain = _chain_of(node)
        if chain is None:
            return Refusal(Reason.OPERATOR, "not a chain of post-ops over an input of the result's type")
        for post_op in chain[1]:
            if (refusal := refuse_result(post_op, node.outputs[0])) is not None:
                return refusal
        return None

    def in_place(self, node: TypedNode) -> Sequence[int]:
        chained, post_ops = _accepted(node)
        # The first step may overwrite its operand; a later one would find it overwritten.
        return (chained, *_operands(node, post_ops[:1]))

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        return chain_scratch(_accepted(node)[1], node.outputs[0])

    def prepare(self, node: TypedNode) -> _Chain:
        chained, post_ops = _accepted(node)
        return _Chain(chained, post_ops, _operands(node, post_ops))

    def bind(self, call: Call) -> Iterable[Launch]:
        chain: _Chain = call.state
        operands = iter([call.input(index) for index in chain.operands])
        steps = [(p, None if isinstance(p, Eltwise) else next(operands)) for p in chain.post_ops]
        return bind_chain(steps, call.input(chain.chained), call.outputs[0], call.scratch)


def _chain_of(node: TypedNode) -> tuple[int, tuple[PostOp, ...]] | None:
    """The input that is chained, and the post-ops."""
    if len(node.outputs) != 1 or not node.node.outputs[0]:
        return None
    result = node.outputs[0]
    for index, given in enumerate(node.inputs):
        if given is result or given == result:  # mostly one object
            post_ops = node.op.post_ops(node.inputs, node.node.inputs, index)
            if post_ops:
                return index, post_ops
    return None


def _accepted(node: TypedNode) -> tuple[int, tuple[PostOp, ...]]:
    chain = _chain_of(node)
    assert chain is not None
    return chain


def _operands(node: TypedNode, post_ops: Iterable[PostOp]) -> tuple[int, ...]:
    return tuple([node.node.inputs.index(p.operand) for p in post_ops if not isinstance(p, Eltwise)])
