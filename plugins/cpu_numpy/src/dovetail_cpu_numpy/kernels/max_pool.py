"""MaxPool."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import BLAS, Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.kernels._pool import buffers, flat, pool
from dovetail_cpu_numpy.launch import Launch, Spec
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.spatial import ConvGeometry

_TYPES = BLAS | {DType.INT8, DType.UINT8}


class SeparableMax(NumpyKernel):
    """The maximum along each axis in turn; NaN wins."""

    name = "separable"

    def refuse(self, node: TypedNode) -> Refusal | None:
        if node.node.writes != node.node.outputs[:1]:
            return Refusal(Reason.ATTRIBUTE, "the indices are requested")
        return refuse_dtypes(node.inputs, _TYPES)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        return buffers(np.maximum, node, _geometry(node))

    def bind(self, call: Call) -> Iterable[Launch]:
        src, dst, g = call.input(0), call.outputs[0], _geometry(call.node)
        if not dst.size:
            return ()
        least = -np.inf if dst.dtype.kind == "f" else np.iinfo(dst.dtype).min
        return pool(np.maximum, least, g, flat(src, g.input), flat(dst, g.output), call.scratch)


def _geometry(node: TypedNode) -> ConvGeometry:
    assert isinstance(node.op, MaxPool)
    assert node.inputs[0] is not None
    return node.op.geometry(node.inputs[0])


KERNELS = (SeparableMax(),)
