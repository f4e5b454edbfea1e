"""Rows that are divided by the root of their mean square, for LayerNormalization and RMSNormalization."""

import math
from collections.abc import Iterable, Sequence
from functools import partial
from typing import ClassVar

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch, Spec, constant, into
from dovetail_ops_onnx.layer_normalization import LayerNormalization
from dovetail_ops_onnx.rms_normalization import RMSNormalization

__all__ = ["NormalizedRows"]


class NormalizedRows(NumpyKernel):
    """Each row of [outer, n], the mean subtracted first where `centred`, divided, multiplied by Scale and added to B, if given.

    Variances are those of the centred values, so nothing cancels.
    """

    name = "rows"
    centred: ClassVar[bool]

    def refuse(self, node: TypedNode) -> Refusal | None:
        found = [given for given in node.inputs if given is not None]
        if len({given.dtype for given in found}) > 1:
            return Refusal(Reason.DTYPE, "inputs of several types")
        for given in found[1:]:
            if given.size != _rows(node)[1]:
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
        ones = np.ones(shape[1], dst.dtype)  # BLAS adds rows up in a quarter of the time that `reduce` takes
        if self.centred:
            yield partial(np.matmul, src, ones, row[:, 0])
            yield into(np.divide, row, constant(shape[1], row), out=row)
            yield into(np.subtract, src, row, out=dst)
            src = dst
        yield into(np.square, src, out=squares)
        yield partial(np.matmul, squares, ones, row[:, 0])
        yield into(np.divide, row, constant(shape[1], row), out=row)
        yield into(np.add, row, constant(_operator(call.node).epsilon, row), out=row)
        yield into(np.sqrt, row, out=row)
        yield into(np.divide, src, row, out=dst)
        yield into(np.multiply, dst, call.input(1).reshape(-1), out=dst)
        if len(call.inputs) > 2 and call.inputs[2] is not None:
            yield into(np.add, dst, call.input(2).reshape(-1), out=dst)


def _operator(node: TypedNode) -> LayerNormalization | RMSNormalization:
    assert isinstance(node.op, LayerNormalization | RMSNormalization)
    return node.op


def _rows(node: TypedNode) -> tuple[int, int]:
    dims = node.outputs[0].dims
    axis = _operator(node).axis % len(dims)
    return math.prod(dims[:axis]), math.prod(dims[axis:])
