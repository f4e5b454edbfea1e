"""LayerNormalization."""

import math
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch, Spec, constant, into
from dovetail_ops_onnx.layer_normalization import LayerNormalization


class CentredRows(NumpyKernel):
    """Mean and variance of each row of [outer, n] in two passes: the second over the centred values, so nothing cancels."""

    name = "rows"

    def refuse(self, node: TypedNode) -> Refusal | None:
        if node.node.writes != node.node.outputs[:1]:
            return Refusal(Reason.ATTRIBUTE, "the statistics are requested")
        dims = node.outputs[0].dims
        for given in node.inputs[1:]:
            if given is not None and given.size != math.prod(dims[_axis(node) :]):
                return Refusal(Reason.SHAPE, f"Scale or B {given} that is not one number for each normalized element")
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
        assert isinstance(call.node.op, LayerNormalization)
        yield partial(np.add.reduce, src, 1, None, row, keepdims=True)
        yield into(np.divide, row, constant(shape[1], row), out=row)
        yield into(np.subtract, src, row, out=dst)
        yield into(np.square, dst, out=squares)
        yield partial(np.add.reduce, squares, 1, None, row, keepdims=True)
        yield into(np.divide, row, constant(shape[1], row), out=row)
        yield into(np.add, row, constant(call.node.op.epsilon, row), out=row)
        yield into(np.sqrt, row, out=row)
        yield into(np.divide, dst, row, out=dst)
        yield into(np.multiply, dst, call.input(1).reshape(-1), out=dst)
        if len(call.inputs) > 2 and call.inputs[2] is not None:
            yield into(np.add, dst, call.input(2).reshape(-1), out=dst)


def _axis(node: TypedNode) -> int:
    assert isinstance(node.op, LayerNormalization)
    return node.op.axis % node.outputs[0].rank


def _rows(node: TypedNode) -> tuple[int, int]:
    dims, axis = node.outputs[0].dims, _axis(node)
    return math.prod(dims[:axis]), math.prod(dims[axis:])


KERNELS = (CentredRows(),)
