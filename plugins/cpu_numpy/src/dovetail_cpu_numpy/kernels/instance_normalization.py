"""InstanceNormalization."""

import math
from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch, Spec, constant, into
from dovetail_ops_onnx.instance_normalization import InstanceNormalization


class Planes(NumpyKernel):
    """Each plane of [N * C, elements] centred, and multiplied by its scale over its standard deviation; sums by BLAS."""

    name = "planes"

    def refuse(self, node: TypedNode) -> Refusal | None:
        if len({given.dtype for given in node.inputs if given is not None}) > 1:
            return Refusal(Reason.DTYPE, "inputs of several types")
        if not node.outputs[0].size:
            return Refusal(Reason.SHAPE, "no elements")
        return refuse_dtypes(node.inputs)

    def in_place(self, node: TypedNode) -> Sequence[int]:
        return (0,)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        dims, dtype = node.outputs[0].dims, node.outputs[0].dtype.numpy
        planes = dims[0] * dims[1]
        return ((planes, 1), dtype), ((planes, math.prod(dims[2:])), dtype)

    def bind(self, call: Call) -> Iterable[Launch]:
        row, squares = call.scratch
        src, dst = (array.reshape(squares.shape) for array in (call.input(0), call.outputs[0]))
        op, images = call.node.op, call.outputs[0].shape[0]
        assert isinstance(op, InstanceNormalization)
        sums, ones, count = row[:, 0], np.ones(squares.shape[1], row.dtype), constant(squares.shape[1], row)
        yield partial(np.matmul, src, ones, sums)
        yield into(np.divide, row, count, out=row)
        yield into(np.subtract, src, row, out=dst)
        yield into(np.square, dst, out=squares)
        yield partial(np.matmul, squares, ones, sums)
        yield into(np.divide, row, count, out=row)
        yield into(np.add, row, constant(op.epsilon, row), out=row)
        yield into(np.sqrt, row, out=row)
        factors = row.reshape(images, row.size // images)
        yield into(np.divide, call.input(1), factors, out=factors)
        yield into(np.multiply, dst, row, out=dst)
        result = dst.reshape(*factors.shape, squares.shape[1])
        yield into(np.add, result, call.input(2)[:, None], out=result)


KERNELS = (Planes(),)
