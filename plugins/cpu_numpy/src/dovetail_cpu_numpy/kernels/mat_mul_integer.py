"""MatMulInteger with constant weights."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import TypedNode
from dovetail_cpu_numpy.kernel import Call
from dovetail_cpu_numpy.kernels._integer_product import ProductKernel
from dovetail_cpu_numpy.launch import Launch, Spec


class Sums(ProductKernel):
    """The sums as int32, which wrap."""

    left, right = (0, 2), (1, 3)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        found = super().scratch(node)
        return (*found, (found[1][0], np.dtype(np.int32)))

    def bind(self, call: Call) -> Iterable[Launch]:
        whole = call.scratch[3]
        dst = call.outputs[0].reshape(whole.shape)
        for index, (launches, product) in enumerate(self.products(call)):
            yield from launches
            yield partial(np.copyto, whole if index else dst, product, casting="unsafe")
            if index:
                yield partial(np.add, dst, whole, dst)


KERNELS = (Sums(),)
