"""The kernels that serve every operator, tried after those of its stem: a view, a chain of post-ops, the reference."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from dovetail.device import PLAIN, REFERENCE_KERNEL, Eltwise, LayerConfig, PostOp, Reason, Refusal, TypedNode, padded, read_only
from dovetail.errors import InferError
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Array, Launch, Spec
from dovetail_cpu_numpy.layouts import logical
from dovetail_cpu_numpy.post_ops import bind_chain, chain_scratch, refuse_result

__all__ = ["GENERIC", "ChainKernel", "ReferenceKernel", "ViewKernel"]


class ViewKernel(NumpyKernel):
    """An operator whose output is its input under another shape: the memory plan gives both the same bytes."""

    name = "view"

    def refuse(self, node: TypedNode) -> Refusal | None:
        if not node.op.is_view:
            return Refusal(Reason.OPERATOR, "moves or computes data")
        # With post-ops the output gets memory of its own; further outputs have to be written.
        if node.post_ops or node.node.writes != node.node.outputs[:1]:
            return Refusal(Reason.OPERATOR, "has more to do than a view")
        return None

    def bind(self, call: Call) -> Iterable[Launch]:
        return ()


@dataclass(frozen=True, slots=True)
class _Chain:
    """An operator as post-ops over its input `chained`; `operands` are the inputs that they read."""

    chained: int
    post_ops: tuple[PostOp, ...]
    operands: tuple[int, ...]


class ChainKernel(NumpyKernel):
    """An operator that says how it is a chain of post-ops (`Operator.post_ops`)."""

    name = "post_ops"
    elementwise = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        chain = _chain_of(node)
        if chain is None:
            return Refusal(Reason.OPERATOR, "is no chain of post-ops over an input of the result's type")
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


class ReferenceKernel(NumpyKernel):
    """The operator's own NumPy reference, its results copied into place. It sees the operator's dimensions in any layout."""

    name = REFERENCE_KERNEL
    from_operator = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        if node.op.has_reference():
            return None
        return Refusal(Reason.OPERATOR, f"{node.op.key} has no NumPy reference")

    def configurations(self, node: TypedNode) -> Sequence[LayerConfig]:
        return (LayerConfig.elementwise(node) if node.op.in_place else LayerConfig.uniform(node, PLAIN),)

    def bind(self, call: Call) -> Iterable[Launch]:
        op, node = call.node.op, call.node
        present = zip(call.inputs, node.inputs, strict=True)
        inputs = padded([None if a is None or t is None else read_only(logical(a, t)) for a, t in present], op.inputs)
        outputs = [logical(array, tensor) for array, tensor in zip(call.outputs, node.outputs, strict=True)]
        places = [index for index, name in enumerate(node.node.outputs) if name]

        def run() -> None:
            found = op.reference(*inputs)
            results = found if isinstance(found, tuple) else (found,)
            for index, dst in zip(places, outputs, strict=True):
                _store(results, index, dst)

        return (run,)


def _store(results: Sequence[object], index: int, dst: Array) -> None:
    if index >= len(results):
        raise InferError(f"reference() gave {len(results)} outputs; the node asks for output {index}")
    result = np.asarray(results[index])
    if result.shape != dst.shape or result.dtype != dst.dtype:
        raise InferError(
            f"reference() gave output {index} as {result.dtype}{list(result.shape)}; "
            f"infer() declares {dst.dtype}{list(dst.shape)}",
            hint="make the operator's reference() and infer() agree",
        )
    np.copyto(dst, result)


GENERIC: tuple[NumpyKernel, ...] = (ViewKernel(), ChainKernel(), ReferenceKernel())
