"""QLinearMatMul with constant weights."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.blocks import in_block
from dovetail_cpu_numpy.kernel import Call, refuse_dtypes
from dovetail_cpu_numpy.kernels._integer_product import ProductKernel
from dovetail_cpu_numpy.kernels._quantized import EIGHT_BITS, requantized
from dovetail_cpu_numpy.launch import Launch, Spec, copy

_A_SCALE, _B_SCALE, _Y_SCALE, _Y_ZERO = 1, 4, 6, 7


class RoundedSums(ProductKernel):
    """The exact sums, with the scales and the rounding in float64."""

    left, right = (0, 2), (3, 5)

    def refuse(self, node: TypedNode) -> Refusal | None:
        scales = [node.given(index) for index in (_A_SCALE, _B_SCALE, _Y_SCALE, _Y_ZERO)]
        if any(t.value is None for t in scales):
            return Refusal(Reason.DYNAMIC, "scales that are not constant")
        if any(t.size != 1 for t in (scales[0], *scales[2:])):
            return Refusal(Reason.SHAPE, "scales of rows")
        refusal = refuse_dtypes(node.outputs, EIGHT_BITS)
        return super().refuse(node) if refusal is None else refusal

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        found, double = super().scratch(node), np.dtype(np.float64)
        return (*found, (found[1][0], double), ((in_block(node.outputs[0].size),), double))

    def bind(self, call: Call) -> Iterable[Launch]:
        total, buffer = call.scratch[3:]
        for index, (launches, product) in enumerate(self.products(call)):
            yield from launches
            if len(call.state.value.pieces) == 1:
                total = product
            else:
                yield partial(np.add, total, product, total) if index else copy(total, product)
        a_scale, b_scale, y_scale = (call.input(index).astype(np.float64) for index in (_A_SCALE, _B_SCALE, _Y_SCALE))
        units = (a_scale.reshape(()) * b_scale.reshape(-1), y_scale.reshape(()))
        dst = call.outputs[0].reshape(total.shape)
        yield from requantized(total, None, units, call.input(_Y_ZERO), dst, buffer)


KERNELS = (RoundedSums(),)
