"""Gather, with every index checked before anything is read."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch, Spec, copy
from dovetail_ops_onnx.gather import Gather, check_gathered, taking_one

_INDEX = np.dtype(np.intp)


class Take(NumpyKernel):
    """`numpy.take` into the result, in its mode that wraps: after the check that is what negative indices mean.

    Its mode that raises would copy the result once more.
    """

    name = "take"
    binds_quickly = True

    def refuse(self, node: TypedNode) -> Refusal | None:
        is_text = node.outputs[0] is not None and node.outputs[0].dtype is DType.STRING
        return Refusal(Reason.DTYPE, "the reference takes strings in parts; accepted: other data types") if is_text else None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        indices = node.given(1)
        return () if indices.dtype.numpy == _INDEX else ((indices.dims, _INDEX),)

    def bind(self, call: Call) -> Iterable[Launch]:
        op, data, indices = call.node.op, call.input(0), call.input(1)
        assert isinstance(op, Gather)
        if not indices.size:
            return
        if indices.size == 1 and call.outputs[0].size:
            yield taking_one(data, indices, op.axis, call.outputs[0])
            return
        if call.scratch:
            yield copy(call.scratch[0], indices)
            indices = call.scratch[0]
        yield partial(check_gathered, indices, data.shape[op.axis], op.axis)
        if call.outputs[0].size:
            yield partial(np.take, data, indices, op.axis, call.outputs[0], "wrap")


KERNELS = (Take(),)
