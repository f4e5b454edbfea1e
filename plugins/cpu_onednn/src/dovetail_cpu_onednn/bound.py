"""Kernels that run in Python: the operator's reference, and the host kernels that an operator brings along in its class."""

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from dovetail import device
from dovetail.device import (
    REFERENCE_KERNEL,
    AbstractOperator,
    Accepted,
    Copy,
    DType,
    HostKernel,
    Reason,
    Refusal,
    TensorType,
    TypedNode,
    node_reference,
    padded,
    read_only,
)
from dovetail.errors import InferError
from dovetail_cpu_onednn.kernel import OnednnKernel
from dovetail_cpu_onednn.layouts import BLOCKED, logical

__all__ = [
    "Array",
    "BoundKernel",
    "Call",
    "HostedKernel",
    "ReferenceKernel",
    "hosted_kernels",
    "number",
    "quiet",
    "stand_in",
]

Array = NDArray[Any]
Call = Callable[[], int | None]
"""One step of a run; gives None or 0."""


class BoundKernel(OnednnKernel):
    """Runs a node by calls of Python, which are bound to the arrays of a request."""

    @abstractmethod
    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        """What each run calls. `array` gives a value as it lies in memory; the content of constants is there already."""


class ReferenceKernel(BoundKernel):
    """The operator's own NumPy reference, its results copied into place."""

    name = REFERENCE_KERNEL
    from_operator = True

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        if node.post_ops:
            return Refusal(Reason.OPERATOR, "a reference takes no post-ops")
        if not node.op.has_reference():
            return Refusal(Reason.OPERATOR, f"{node.op.key} has no NumPy reference")
        if any(t is not None and t.dtype is DType.STRING for t in (*node.inputs, *node.outputs)):
            return Refusal(Reason.DTYPE, "string")
        return Accepted(self.name)

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
    np.copyto(dst, result)


def stand_in(node: TypedNode, array: Callable[[str], Array]) -> Call:
    """The node with its post-ops, by references, in the layouts of its types: for data that its primitive gets wrong."""
    head, dst, result = node.node, array(node.node.outputs[0]), node.outputs[0]
    sources = [(array(n), t) if n and t else None for n, t in zip(head.inputs, node.inputs, strict=True)]
    operands = [(array(n), t) for n, t in zip(head.operands, node.operands, strict=True)]
    chain = replace(head, op=Copy(), inputs=(f"{head.outputs[0]}/chained",))

    def run() -> None:
        # Not by `node_reference` as a whole: operators of old versions have references for bfloat16, but do not declare it.
        with np.errstate(all="ignore"):
            found = node.op.reference(*padded([None if pair is None else _unpacked(*pair) for pair in sources], node.op.inputs))
            value = found[0] if isinstance(found, tuple) else found
            if chain.post_ops:
                (value,) = node_reference(chain, [value], [_unpacked(*pair) for pair in operands])
            _pack(value, dst, result)

    return run


def _unpacked(array: Array, tensor: TensorType) -> Array:
    """The value in its own dimensions, of memory in any layout."""
    if not tensor.layout.block:
        return read_only(logical(array, tensor))
    batch, blocks, *rest, block = array.shape
    return np.moveaxis(array, -1, 2).reshape(batch, blocks * block, *rest)[:, : tensor.dims[1]]


def _pack(value: Array, dst: Array, tensor: TensorType) -> None:
    if not tensor.layout.block:
        np.copyto(logical(dst, tensor), value)
        return
    batch, blocks, *rest, block = dst.shape
    whole = np.zeros((batch, blocks * block, *rest), dst.dtype)
    whole[:, : tensor.dims[1]] = value
    np.copyto(dst, np.moveaxis(whole.reshape(batch, blocks, block, *rest), 2, -1))


def hosted_kernels(op: AbstractOperator) -> Sequence["HostedKernel"]:
    """The host kernels of an operator, in its order."""
    return [HostedKernel(kernel) for kernel in op.kernels if isinstance(kernel, HostKernel)]


class HostedKernel(device.HostedKernel, BoundKernel):
    """One of the operator's host kernels. Blocked layouts come to it as they are."""

    from_operator = True
    blocked = BLOCKED

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        refusal = Refusal(Reason.POST_OP, "a host kernel takes none") if node.post_ops else self.refuse(node)
        if refusal is None and any(t is not None and t.dtype is DType.STRING for t in (*node.inputs, *node.outputs)):
            refusal = Refusal(Reason.DTYPE, "string")
        return Accepted(self.name) if refusal is None else refusal

    def in_place(self, node: TypedNode) -> Sequence[str]:
        return [node.node.inputs[index] for index in self.taken_over(node)]

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterator[Call]:
        inputs, outputs = ([array(name) if name else None for name in names] for names in (node.node.inputs, node.node.outputs))
        for step in self.steps(node, self.chosen(node), inputs, outputs):
            yield quiet(step)
        for name, tensor in zip(node.node.writes, node.outputs, strict=True):
            if (filling := _filling(array(name), tensor)) is not None:
                yield filling


def number(array: Array) -> MutableSequence[Any]:
    """The single element of an array as number 0: reading and writing it takes 0.1 us, and 0.4 to 0.9 by NumPy's functions."""
    found: Any = array.reshape(1).data
    return cast(MutableSequence[Any], found)


def quiet(function: Callable[[], object]) -> Call:
    """The function as a step of a run: what it gives counts for nothing."""

    def run() -> None:
        function()

    return run


def _filling(array: Array, tensor: TensorType) -> Call | None:
    """Zeros in the channels past the last, which oneDNN's primitives rely on; None where there are none."""
    block = tensor.layout.block
    if not block or not tensor.dims[1] % block:
        return None
    return partial(np.copyto, array[:, -1, ..., tensor.dims[1] % block :], np.float32(0))
