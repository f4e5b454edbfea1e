"""GatherND."""

import math

import numpy as np

from dovetail.device import Reason, Refusal, TypedNode
from dovetail_gpu_opencl.broadcast import strides_of
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Argument, Constant, Fault, Launch, Read, Write, ints
from dovetail_gpu_opencl.source import MOVABLE, assemble
from dovetail_ops_onnx.gather_nd import GatherND

__all__ = ["KERNELS"]


class GatherNDKernel(CLKernel):
    """gather_nd.cl: a word a work item; an index out of range reads element 0 and raises the fault flag."""

    name = "gather_nd"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def check(self, node: TypedNode) -> Refusal | None:
        data = node.given(0)
        return Refusal(Reason.SHAPE, f"data is {data}") if node.outputs[0].size and not data.size else None

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        assert isinstance(node.op, GatherND)
        data, indices = node.given(0), node.given(1)
        batch, depth = node.op.batch_dims, indices.dims[-1]
        inner, itemsize = math.prod(data.dims[batch + depth :]), data.dtype.itemsize
        width = max(w for w in (1, 2, 4, 8, 16) if inner % w == 0 and itemsize * w <= max(WORDS))
        bounds, words = data.dims[batch : batch + depth], inner // width
        steps = [step * words for step in strides_of(bounds)]
        fault = Fault(f"an index is outside the axes from {batch} on, of sizes {list(bounds)}")
        arguments: tuple[Argument, ...] = (
            *(Read(name) for name in node.node.inputs),
            Constant(np.array([*bounds, *steps], np.int32)),
            Write(node.node.outputs[0]),
            *ints(
                node.outputs[0].size // width,
                depth,
                words,
                math.prod(indices.dims[batch:-1]),
                math.prod(bounds) * words,
            ),
            fault,
        )
        source = assemble("gather_nd.cl", {"T": WORDS[itemsize * width]})
        work, local = spread(node.outputs[0].size // width, self.caps)
        return (Launch("gather_nd.cl", source, self.name, arguments, work, local),)


KERNELS = (GatherNDKernel(),)
