"""Hardmax."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._axis import Lines, value_type
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write
from dovetail_gpu_opencl.source import assemble, storage
from dovetail_ops_onnx.hardmax import Hardmax, Hardmax_1

__all__ = ["KERNELS"]


class HardmaxKernel(CLKernel):
    """hardmax.cl along one axis, a work item a line; before version 13 along all axes from `axis` on."""

    name = "hardmax"
    halves_by_load = True
    has_epilogue = False

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, Hardmax | Hardmax_1)
        dtype, dims = node.outputs[0].dtype, node.outputs[0].dims
        lines = Lines.of(dims, node.op.axis, to_end=isinstance(node.op, Hardmax_1))
        source = assemble("hardmax.cl", {**storage(dtype), "VALUE": value_type(dtype)})
        work, local = lines.work(self.caps)
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *lines.arguments)
        return (Launch("hardmax.cl", source, "hardmax", arguments, work, local),)


KERNELS = (HardmaxKernel(),)
