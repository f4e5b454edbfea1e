"""AveragePool."""

import functools
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from dovetail.device import Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel, refuse_dtypes
from dovetail_cpu_numpy.kernels._pool import buffers, flat, pool
from dovetail_cpu_numpy.launch import Launch, Spec, into
from dovetail_ops_onnx.average_pool import AveragePool
from dovetail_ops_onnx.spatial import ConvGeometry


class SeparableSum(NumpyKernel):
    """The sum along each axis in turn, divided by the number of elements that count."""

    name = "separable"

    def refuse(self, node: TypedNode) -> Refusal | None:
        return refuse_dtypes(node.inputs)

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        return buffers(np.add, node, _geometry(node))

    def prepare(self, node: TypedNode) -> Any:
        """The divisor at each output position, or one for all."""
        assert isinstance(node.op, AveragePool)
        counts = functools.reduce(np.multiply.outer, node.op.counts(_geometry(node)))
        divisor = counts.astype(node.outputs[0].dtype.numpy)
        return divisor.reshape(-1)[0] if divisor.size and (divisor == divisor.flat[0]).all() else divisor

    def bind(self, call: Call) -> Iterable[Launch]:
        return self._bind(call) if call.outputs[0].size else ()

    def _bind(self, call: Call) -> Iterator[Launch]:
        src, dst, g = call.input(0), call.outputs[0], _geometry(call.node)
        yield from pool(np.add, 0.0, g, flat(src, g.input), flat(dst, g.output), call.scratch)
        yield into(np.divide, dst, np.asarray(call.state), out=dst)


def _geometry(node: TypedNode) -> ConvGeometry:
    assert isinstance(node.op, AveragePool)
    assert node.inputs[0] is not None
    return node.op.geometry(node.inputs[0])


KERNELS = (SeparableSum(),)
