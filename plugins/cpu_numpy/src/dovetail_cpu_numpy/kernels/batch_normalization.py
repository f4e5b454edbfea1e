"""BatchNormalization whose parameters are constants."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.launch import Launch, into
from dovetail_ops_onnx.batch_normalization import BatchNormalization, BatchNormalization_7


class ScaleShift(NumpyKernel):
    """x * factor + shift, both computed once in float64."""

    name = "scale_shift"

    def refuse(self, node: TypedNode) -> Refusal | None:
        op = node.op
        if isinstance(op, BatchNormalization) and op.training_mode:
            return Refusal(Reason.ATTRIBUTE, "training_mode")
        if any(given is None or given.value is None for given in node.inputs[1:]):
            return Refusal(Reason.ATTRIBUTE, "parameters that are not constant")
        return refuse_dtypes(node.inputs)

    def in_place(self, node: TypedNode) -> Sequence[int]:
        return (0,)

    def prepare(self, node: TypedNode) -> Any:
        """The factor and the shift, shaped to broadcast to the input."""
        op, dtype, dims = node.op, node.outputs[0].dtype.numpy, node.outputs[0].dims
        assert isinstance(op, BatchNormalization | BatchNormalization_7)
        values = [t.value for t in node.inputs[1:] if t is not None and t.value is not None]
        scale, shift, mean, variance = (a.astype(np.float64) for a in values)
        factor = scale / np.sqrt(variance + op.epsilon)
        each_element = isinstance(op, BatchNormalization_7) and not op.spatial
        shape = dims[1:] if each_element else (factor.size, *(1,) * (len(dims) - 2))
        return tuple(a.reshape(shape).astype(dtype) for a in (factor, shift - mean * factor))

    def bind(self, call: Call) -> Iterable[Launch]:
        (factor, shift), (dst,) = call.state, call.outputs
        yield into(np.multiply, call.input(0), factor, out=dst)
        yield into(np.add, dst, shift, out=dst)


KERNELS = (ScaleShift(),)
