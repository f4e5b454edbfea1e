"""RMSNormalization."""

import math
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch, Spec, constant, into
from dovetail_ops_onnx.rms_normalization import RMSNormalization


class Rows(NumpyKernel):
    """The root of the mean square of each row of [outer, n], a division and a product."""

    name = "rows"

    def refuse(self, node: TypedNode) -> Refusal | None:
        x, scale = node.inputs[:2]
        assert x is not None
        assert scale is not None
        if x.dtype is not scale.dtype:
            return Refusal(Reason.DTYPE, "inputs of several types")
        if scale.size != _rows(node)[1]:
            return Refusal(Reason.SHAPE, f"scale {scale} that is not one number for each normalized element")
        return refuse_dtypes(node.inputs)

    def in_place(self, node: TypedNode) -> Sequence[int]:
        return (0,)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        outer, n = _rows(node)
        dtype = node.outputs[0].dtype.numpy
        return (((outer, 1), dtype), ((outer, n), dtype))

    def bind(self, call: Call) -> Iterable[Launch]:
        shape, (row, squares) = _rows(call.node), call.scratch
        src, dst = call.input(0).reshape(shape), call.outputs[0].reshape(shape)
        assert isinstance(call.node.op, RMSNormalization)
        yield into(np.square, src, out=squares)
        yield partial(np.add.reduce, squares, 1, None, row, keepdims=True)
        yield into(np.divide, row, constant(shape[1], row), out=row)
        yield into(np.add, row, constant(call.node.op.epsilon, row), out=row)
        yield into(np.sqrt, row, out=row)
        yield into(np.divide, src, row, out=dst)
        yield into(np.multiply, dst, call.input(1).reshape(-1), out=dst)


def _rows(node: TypedNode) -> tuple[int, int]:
    assert isinstance(node.op, RMSNormalization)
    dims = node.outputs[0].dims
    axis = node.op.axis % len(dims)
    return math.prod(dims[:axis]), math.prod(dims[axis:])


KERNELS = (Rows(),)
