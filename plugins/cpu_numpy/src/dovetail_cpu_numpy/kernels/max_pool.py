"""MaxPool."""

from collections.abc import Iterable, Sequence

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.kernels._pool import flat, intermediates, pool
from dovetail_cpu_numpy.launch import Launch, Spec
from dovetail_ops_onnx.max_pool import MaxPool
from dovetail_ops_onnx.spatial import ConvGeometry


class SeparableMax(NumpyKernel):
    """The maximum along each axis in turn; NaN wins."""

    name = "separable"

    def refuse(self, node: TypedNode) -> Refusal | None:
        if node.node.writes != node.node.outputs[:1]:
            return Refusal(Reason.ATTRIBUTE, "the indices are requested")
        return refuse_dtypes(node.inputs)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        return intermediates(node, _geometry(node))

    def bind(self, call: Call) -> Iterable[Launch]:
        src, dst, g = call.input(0), call.outputs[0], _geometry(call.node)
        if not dst.size:
            return ()
        return pool(np.maximum, -np.inf, g, flat(src, g.input), flat(dst, g.output), call.scratch)


def _geometry(node: TypedNode) -> ConvGeometry:
    assert isinstance(node.op, MaxPool)
    assert node.inputs[0] is not None
    return node.op.geometry(node.inputs[0])


KERNELS = (SeparableMax(),)
