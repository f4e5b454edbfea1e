"""Where: the second alternative copied, then the first where the condition holds."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch, copy


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


KERNELS = (MaskedCopy(),)
