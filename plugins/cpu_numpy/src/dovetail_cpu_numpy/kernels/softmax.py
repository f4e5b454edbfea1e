"""Softmax."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._softmax import SoftmaxKernel, add_along, are_usual, shifted
from dovetail_cpu_numpy.launch import Array, Launch, Spec, into


class Softmax(SoftmaxKernel):
    """exp(x) / sum along the last axis where the sums permit that, else exp(x - max) / sum."""

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        row, shape = self.row_type(node), self.rows(node)
        found: list[Spec] = [(row.dims, row.dtype.numpy)]
        return [*found, (shape[:2], row.dtype.numpy)] if shape[2] == 1 else found

    def bind(self, call: Call) -> Iterable[Launch]:
        shape, (row, *quotients) = self.rows(call.node), call.scratch
        src, dst = call.input(0).reshape(shape), call.outputs[0].reshape(shape)
        if not dst.size:
            return ()
        launches = [*shifted(src, row, dst), into(np.exp, dst, out=dst), add_along(dst, row), into(np.divide, dst, row, out=dst)]
        return [_by_rows(src[..., 0], dst[..., 0], row[..., 0], quotients[0], launches)] if quotients else launches


def _by_rows(src: Array, dst: Array, row: Array, exponentials: Array, launches: Sequence[Launch]) -> Launch:
    """dst [outer, n] without the shift, else by the launches; `src` may be the memory of `dst`."""
    ones, sums = np.ones(src.shape[1], src.dtype), row[:, 0]

    def run() -> None:
        np.exp(src, exponentials)
        np.matmul(exponentials, ones, sums)
        if are_usual(sums):
            np.divide(exponentials, row, dst)
            return
        for launch in launches:
            launch()

    return run


KERNELS = (Softmax(),)
