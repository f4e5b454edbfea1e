"""EyeLike: its content is known while planning."""

import numpy as np

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel, spread
from dovetail_gpu_opencl.kernels._copy import WORDS
from dovetail_gpu_opencl.launch import Constant, Launch, Write
from dovetail_gpu_opencl.source import MOVABLE, assemble
from dovetail_ops_onnx.eye_like import EyeLike

__all__ = ["KERNELS"]


class Eye(CLKernel):
    """A copy of a constant."""

    name = "copy"
    dtypes = MOVABLE
    has_epilogue = False
    computes = False

    def launches(self, node: TypedNode) -> tuple[Launch, ...]:
        dst = node.outputs[0]
        assert isinstance(node.op, EyeLike)
        rows, columns = dst.dims
        matrix = Constant(np.eye(rows, columns, node.op.k).astype(dst.dtype.numpy))
        defines = {"T": WORDS[dst.dtype.itemsize], "SIZE": dst.size, "SRC(o)": "(o)", "DST(o)": "(o)"}
        work, local = spread(dst.size, self.caps)
        arguments = (matrix, Write(node.node.outputs[0]))
        return (Launch("copy.cl", assemble("copy.cl", defines), "copy", arguments, work, local),)


KERNELS = (Eye(),)
