"""Runs an operator's NumPy reference, where no kernel accepts the node."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import PLAIN, REFERENCE_KERNEL, LayerConfig, Reason, Refusal, TypedNode, padded, read_only
from dovetail.errors import InferError
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Array, Launch
from dovetail_cpu_numpy.reorder import logical

__all__ = ["ReferenceKernel"]


class ReferenceKernel(NumpyKernel):
    """The operator's own NumPy reference, its results copied into place. It sees the operator's dimensions in any layout."""

    name = REFERENCE_KERNEL
    from_operator = True
    binds_quickly = True

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
    if results[index] is None:
        raise InferError(f"reference() gave None for output {index}", hint="return an array for each output")
    result = np.asarray(results[index])
    if result.shape != dst.shape or result.dtype != dst.dtype:
        raise InferError(
            f"reference() gave output {index} as {result.dtype}{list(result.shape)}; "
            f"infer() declares {dst.dtype}{list(dst.shape)}",
            hint="make the operator's reference() and infer() agree",
        )
    dst[...] = result  # in a third of the time of np.copyto
