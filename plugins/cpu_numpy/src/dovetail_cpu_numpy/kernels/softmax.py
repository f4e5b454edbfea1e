"""Softmax."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._softmax import SoftmaxKernel, add_along, shifted
from dovetail_cpu_numpy.launch import Launch, Spec, into


class Softmax(SoftmaxKernel):
    """exp(x - max) / sum."""

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        row = self.row_type(node)
        return ((row.dims, row.dtype.numpy),)

    def bind(self, call: Call) -> Iterable[Launch]:
        shape, (row,) = self.rows(call.node), call.scratch
        src, dst = call.input(0).reshape(shape), call.outputs[0].reshape(shape)
        if not dst.size:
            return
        yield from shifted(src, row, dst)
        yield into(np.exp, dst, out=dst)
        yield add_along(dst, row)
        yield into(np.divide, dst, row, out=dst)


KERNELS = (Softmax(),)
