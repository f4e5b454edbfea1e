"""Softmax and LogSoftmax."""

import math

from dovetail.device import DType, TypedNode
from dovetail.ops.log_softmax import LogSoftmax, LogSoftmax_1
from dovetail.ops.softmax import Softmax, Softmax_1
from dovetail_gpu_opencl import postops
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._rows import Rows
from dovetail_gpu_opencl.launch import Launch, Read, Write
from dovetail_gpu_opencl.source import accumulator, assemble, storage

__all__ = ["SoftmaxRows"]


class SoftmaxRows(CLKernel):
    """softmax.cl along one axis; before version 13 along all axes from `axis` on."""

    name = "softmax"
    half_by_load = True
    bfloat16_by_load = True

    def __init__(self, *, logarithm: bool = False) -> None:
        self._logarithm = logarithm

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dst = node.outputs[0]
        rows = _rows(node)
        acc = accumulator(dst.dtype)
        tunables = rows.defines(self.caps, acc)
        if dst.dtype in (DType.FLOAT16, DType.BFLOAT16):
            tunables["VEC"] = 1  # vectors of halves need an extension, those of bfloat16 there are none of
        defines = {**storage(dst.dtype), "ACC": acc, **tunables, "LOGARITHM": self._logarithm}
        chain = postops.epilogue(node, tunables["VEC"])
        work, local = rows.work(self.caps)
        arguments = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *chain.arguments)
        source = assemble("softmax.cl", defines, chain.source)
        return (Launch("softmax.cl", source, "softmax", arguments, work, local),)


def _rows(node: TypedNode) -> Rows:
    assert isinstance(node.op, LogSoftmax | LogSoftmax_1 | Softmax | Softmax_1)
    dims = node.outputs[0].dims
    axis = node.op.axis % max(1, len(dims))
    if isinstance(node.op, LogSoftmax_1 | Softmax_1):
        return Rows(math.prod(dims[:axis]), math.prod(dims[axis:]))
    inner = math.prod(dims[axis + 1 :])
    size = dims[axis] if dims else 1
    return Rows(math.prod(dims) // size if size else 0, size, inner)
