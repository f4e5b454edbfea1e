"""Runs an operator's NumPy reference: where no kernel accepts a node, and for data that its primitive computes wrongly."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import numpy as np

from dovetail.device import (
    REFERENCE_KERNEL,
    Accepted,
    DType,
    Reason,
    Refusal,
    TypedNode,
    node_reference,
    padded,
    read_only,
)
from dovetail.errors import InferError
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel
from dovetail_cpu_onednn.reorder import pack, unpacked

__all__ = ["ReferenceKernel", "reference_call"]


_ACCEPTED = Accepted(REFERENCE_KERNEL)


class ReferenceKernel(PythonKernel):
    """The operator's own NumPy reference, its results copied into place."""

    name = REFERENCE_KERNEL
    from_operator = True
    binds_quickly = True

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.OPERATOR, "a reference takes no post-ops")
        if not node.op.has_reference():
            return Refusal(Reason.OPERATOR, f"{node.op.key} has no NumPy reference")
        for t in (*node.inputs, *node.outputs):  # in half the time of any(): asked of every node
            if t is not None and t.dtype is DType.STRING:
                return Refusal(Reason.DTYPE, "string")
        return _ACCEPTED

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        reference = node.op.reference
        inputs = padded([read_only(array(name)) if name else None for name in node.node.inputs], node.op.inputs)
        outputs = [(i, array(name)) for i, name in enumerate(node.node.outputs) if name]

        def run() -> None:
            found = reference(*inputs)
            results = found if isinstance(found, tuple) else (found,)
            for index, dst in outputs:
                _store(results, index, dst)

        return (run,)


def _store(results: Sequence[object], index: int, dst: Array) -> None:
    result = np.asarray(results[index]) if index < len(results) else None
    if result is None or result.shape != dst.shape or result.dtype != dst.dtype:
        got = "nothing" if result is None else f"{result.dtype}{list(result.shape)}"
        raise InferError(
            f"reference() gave output {index} as {got}; infer() declares {dst.dtype}{list(dst.shape)}",
            hint="make the operator's reference() and infer() agree",
        )
    dst[...] = result  # in a third of the time of np.copyto


def reference_call(node: TypedNode, array: Callable[[str], Array]) -> Call:
    """The node with its post-ops, by references, in the layouts of its types: for data that its primitive computes wrongly."""
    head = node.node
    sources = [(array(n), t) if n and t else None for n, t in zip(head.inputs, node.inputs, strict=True)]
    operands = [(array(n), t) for n, t in zip(head.operands, node.operands, strict=True)]
    written = [index for index, name in enumerate(head.outputs) if name]
    results = [(i, array(head.outputs[i]), t) for i, t in zip(written, node.outputs, strict=True)]
    from dovetail.device import Copy  # here, because few sessions come to this

    chain = replace(head, op=Copy(), inputs=(f"{head.outputs[0]}/chained",), outputs=head.outputs[:1])

    def run() -> None:
        # Not by `node_reference` as a whole: operators of old versions have references for bfloat16, but do not declare it.
        with np.errstate(all="ignore"):
            found = node.op.reference(*padded([None if pair is None else unpacked(*pair) for pair in sources], node.op.inputs))
            values = [*found] if isinstance(found, tuple) else [found]
            if chain.post_ops:
                values[:1] = node_reference(chain, values[:1], [unpacked(*pair) for pair in operands])
            for index, dst, tensor in results:
                pack(values[index], dst, tensor)

    return run
