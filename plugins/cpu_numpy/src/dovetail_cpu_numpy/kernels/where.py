"""Where: bits of the alternatives selected by masks; of few elements the second copied, then the first where it is true."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch, Spec, copy

FEW = 1 << 13
"""Elements up to which two copies take less time."""


class BitSelect(NumpyKernel):
    """dst = X ^ ((X ^ Y) & mask), with ones in the mask where the condition is false.

    Copies of elements one by one wait for branches that random conditions make unpredictable.
    """

    name = "bit_select"
    elementwise = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        (result,) = node.outputs
        if result.dtype is DType.STRING or result.dtype.itemsize > 8:
            return Refusal(Reason.DTYPE, f"{result.dtype}; accepted: up to 8 bytes")
        return Refusal(Reason.SHAPE, f"{result}, few elements") if result.size <= FEW else None

    def in_place(self, node: TypedNode) -> Sequence[int]:
        return (2,)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        condition = node.given(0)
        return ((condition.memory_dims, _bits(node.outputs[0].dtype.itemsize)),)

    def bind(self, call: Call) -> Iterable[Launch]:
        condition, *data = (call.input(0), call.input(1), call.input(2), call.outputs[0])
        bits, (mask,) = _bits(data[-1].itemsize), call.scratch
        x, y, dst = (a.view(bits) for a in data)
        yield partial(np.subtract, condition.view(np.int8), 1, mask, dtype=bits)
        yield partial(np.bitwise_xor, x, y, dst)
        yield partial(np.bitwise_and, dst, mask, dst)
        yield partial(np.bitwise_xor, dst, x, dst)


def _bits(size: int) -> np.dtype[np.signedinteger]:
    """The integers of so many bytes."""
    return np.dtype(f"i{size}")


class MaskedCopy(NumpyKernel):
    """dst = Y; dst = X where the condition is true."""

    name = "masked_copy"
    elementwise = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        return None

    def in_place(self, node: TypedNode) -> Sequence[int]:
        return (2,)

    def bind(self, call: Call) -> Iterable[Launch]:
        (dst,) = call.outputs
        condition, x, y = call.input(0), call.input(1), call.input(2)
        if not np.may_share_memory(dst, y):
            yield copy(dst, y)
        yield partial(np.copyto, dst, x, where=condition)


KERNELS = (BitSelect(), MaskedCopy())
