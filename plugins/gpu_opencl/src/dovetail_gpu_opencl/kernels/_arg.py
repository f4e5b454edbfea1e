"""ArgMax and ArgMin."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._axis import NUMBERS, Lines, value_type
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write
from dovetail_gpu_opencl.source import assemble, storage
from dovetail_ops_onnx.arg_max import ArgMax
from dovetail_ops_onnx.arg_min import ArgMin

__all__ = ["Arg"]


class Arg(CLKernel):
    """arg.cl: a work item a line on CPUs, a work group on GPUs."""

    name = "arg"
    dtypes = NUMBERS
    halves_by_load = True
    has_epilogue = False

    def __init__(self, *, largest: bool) -> None:
        self._largest = largest

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, ArgMax | ArgMin)
        src = node.given(0)
        lines = Lines.of(src.dims, node.op.axis)
        group = lines.group(self.caps)
        defines = {
            **storage(src.dtype),
            "VALUE": value_type(src.dtype),
            "LARGEST": self._largest,
            "LAST": node.op.select_last_index,
            "GROUP": group,
        }
        work, local = lines.work(self.caps, group)
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *lines.arguments)
        return (Launch("arg.cl", assemble("arg.cl", defines), "arg", arguments, work, local),)
