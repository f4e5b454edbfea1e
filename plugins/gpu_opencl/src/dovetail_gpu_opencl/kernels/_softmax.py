"""Softmax and LogSoftmax."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._axis import Lines
from dovetail_gpu_opencl.kernels._rows import row_defines
from dovetail_gpu_opencl.launch import Launch, Read, Write
from dovetail_gpu_opencl.sizes import by_value
from dovetail_gpu_opencl.source import accumulator, assemble, storage
from dovetail_ops_onnx.log_softmax import LogSoftmax, LogSoftmax_1
from dovetail_ops_onnx.softmax import Softmax, Softmax_1

__all__ = ["SoftmaxRows"]


class SoftmaxRows(CLKernel):
    """softmax.cl along one axis; before version 13 along all axes from `axis` on."""

    name = "softmax"
    by_content = False
    halves_by_load = True

    def __init__(self, *, logarithm: bool = False) -> None:
        self._logarithm = logarithm

    def any_sizes(self, node: TypedNode) -> bool:
        return True

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        op, dst = node.op, node.outputs[0]
        assert isinstance(op, LogSoftmax | LogSoftmax_1 | Softmax | Softmax_1)
        if not dst.size:
            return ()
        to_end = isinstance(op, LogSoftmax_1 | Softmax_1)
        rows, dense = Lines.of(dst.dims, op.axis, to_end=to_end), to_end or op.axis in (-1, dst.rank - 1)
        numbers = row_defines(rows, dst.dtype, self.caps, dense=dense)
        types = {**storage(dst.dtype), "ACC": accumulator(dst.dtype), "LOGARITHM": self._logarithm}
        # GPUs know the sizes of rows before they run: these choose the size of a group, too.
        defines, sizes = by_value({**types, **numbers}, ("SIZE", "INNER") if self.caps.kind == "CPU" else ())
        chain, group = post_ops.epilogue(node, numbers["VEC"]), numbers["GROUP"]
        arguments = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *sizes, *chain.arguments)
        source = assemble("softmax.cl", defines, chain.source)
        return (Launch("softmax.cl", source, "softmax", arguments, (rows.count * group,), (group,)),)
