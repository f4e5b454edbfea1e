"""LRN."""

import math

from dovetail.device import TypedNode
from dovetail_gpu_opencl import post_ops
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.launch import Argument, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import accumulator, assemble, literal, storage
from dovetail_ops_onnx.lrn import LRN

__all__ = ["KERNELS"]


class Responses(CLKernel):
    """lrn.cl: an element a work item."""

    name = "lrn"
    halves_by_load = True

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        op, dst, chain = node.op, node.outputs[0], post_ops.epilogue(node)
        assert isinstance(op, LRN)
        acc = accumulator(dst.dtype)
        numbers = {"ALPHA": op.alpha / op.size, "BETA": op.beta, "BIAS": op.bias}
        defines = {**storage(dst.dtype), "ACC": acc, **{name: literal(number, acc) for name, number in numbers.items()}}
        arguments: tuple[Argument, ...] = (
            Read(node.node.inputs[0]),
            Write(node.node.outputs[0]),
            *ints(dst.size, dst.dims[1], math.prod(dst.dims[2:]), (op.size - 1) // 2, op.size // 2),
            *chain.arguments,
        )
        work, local = spread(dst.size, self.caps)
        return (Launch("lrn.cl", assemble("lrn.cl", defines, chain.source), "lrn", arguments, work, local),)


KERNELS = (Responses(),)
