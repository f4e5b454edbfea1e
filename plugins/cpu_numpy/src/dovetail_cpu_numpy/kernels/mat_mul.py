"""MatMul."""

import math
from collections.abc import Iterable
from functools import partial

import numpy as np

from dovetail.device import Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch


class Matmul(NumpyKernel):
    """`numpy.matmul` of floats; a right operand that is one matrix takes all rows of the left one in a single product."""

    name = "matmul"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return refuse_dtypes(node.inputs)

    def bind(self, call: Call) -> Iterable[Launch]:
        a, b, (dst,) = call.input(0), call.input(1), call.outputs
        if not dst.size:
            return
        if a.ndim > 2 and b.ndim >= 2 and math.prod(b.shape[:-2]) == 1:
            k, n = b.shape[-2:]
            a, b, dst = a.reshape(dst.size // n, k), b.reshape(k, n), dst.reshape(-1, n)
        yield partial(np.matmul, a, b, dst)


KERNELS = (Matmul(),)
