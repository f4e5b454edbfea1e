"""EyeLike: its content is known while planning."""

import numpy as np

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernel import CLKernel
from dovetail_gpu_opencl.kernels._copy import Move
from dovetail_gpu_opencl.launch import Constant, Launch
from dovetail_gpu_opencl.source import MOVABLE
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
        return (Move(matrix, node.node.outputs[0], (dst.size,), (1,), (1,)).launch(dst.dtype.itemsize, self.caps),)


KERNELS = (Eye(),)
