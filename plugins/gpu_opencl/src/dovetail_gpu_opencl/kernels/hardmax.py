"""Hardmax."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._axis import Lines, value_type
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write
from dovetail_gpu_opencl.source import assemble, storage

__all__ = ["KERNELS"]


class Hardmax(CLKernel):
    """hardmax.cl: a work item a line."""

    name = "hardmax"
    half_by_load = True
    bfloat16_by_load = True
    has_epilogue = False

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dtype, lines = node.outputs[0].dtype, Lines.along(node)
        source = assemble("hardmax.cl", {**storage(dtype), "VALUE": value_type(dtype)})
        work, local = lines.work(self.caps)
        arguments: tuple[Argument, ...] = (Read(node.node.inputs[0]), Write(node.node.outputs[0]), *lines.arguments)
        return (Launch("hardmax.cl", source, "hardmax", arguments, work, local),)


KERNELS = (Hardmax(),)
