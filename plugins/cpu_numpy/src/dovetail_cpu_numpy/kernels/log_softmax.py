"""LogSoftmax."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._softmax import SoftmaxKernel, add_along, shifted
from dovetail_cpu_numpy.launch import Launch, Spec, into


class LogSoftmax(SoftmaxKernel):
    """x - max - log(sum(exp(x - max)))."""

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        row = self.row_type(node)
        return ((row.dims, row.dtype.numpy), (self.rows(node), row.dtype.numpy))

    def bind(self, call: Call) -> Iterable[Launch]:
        shape, (row, exponentials) = self.rows(call.node), call.scratch
        src, dst = call.input(0).reshape(shape), call.outputs[0].reshape(shape)
        if not dst.size:
            return
        yield from shifted(src, row, dst)
        yield into(np.exp, dst, out=exponentials)
        if shape[2] == 1:
            yield partial(np.matmul, exponentials[..., 0], np.ones(shape[1], row.dtype), row[:, 0, 0])
        else:
            yield add_along(exponentials, row)
        yield into(np.log, row, out=row)
        yield into(np.subtract, dst, row, out=dst)


KERNELS = (LogSoftmax(),)
