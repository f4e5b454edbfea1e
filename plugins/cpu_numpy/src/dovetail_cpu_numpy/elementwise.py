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
        return next((r for p in chain.post_ops if (r := refuse_result(p, node.outputs[0])) is not None), None)

    def in_place(self, node: TypedNode) -> Sequence[int]:
        chain = self.prepare(node)
        # The first step may overwrite its operand; a later one would find it overwritten.
        first = chain.operands[:1] if chain.post_ops and not isinstance(chain.post_ops[0], Eltwise) else ()
        return (chain.chained, *first)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        return chain_scratch(self.prepare(node).post_ops, node.outputs[0])

    def prepare(self, node: TypedNode) -> _Chain:
        chain = _chain_of(node)
        assert chain is not None
        return chain

    def bind(self, call: Call) -> Iterable[Launch]:
        chain: _Chain = call.state
        operands = iter([call.input(index) for index in chain.operands])
        steps = [(p, None if isinstance(p, Eltwise) else next(operands)) for p in chain.post_ops]
        return bind_chain(steps, call.input(chain.chained), call.outputs[0], call.scratch)


def _chain_of(node: TypedNode) -> _Chain | None:
    if len(node.outputs) != 1 or not node.node.outputs[0]:
        return None
    for index, given in enumerate(node.inputs):
        if given == node.outputs[0]:
            post_ops = node.op.post_ops(node.inputs, node.node.inputs, index)
            if post_ops:
                names = [p.operand for p in post_ops if not isinstance(p, Eltwise)]
                return _Chain(index, post_ops, tuple(node.node.inputs.index(name) for name in names))
    return None
