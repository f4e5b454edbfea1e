"""DFT."""

import math

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernels._fourier import Fourier, Transform
from dovetail_ops_onnx.dft import DFT, DFT_17

__all__ = ["KERNELS"]


class DFTKernel(Fourier):
    """Lines along the axis of the transform."""

    def transform(self, node: TypedNode) -> Transform:
        op = node.op
        assert isinstance(op, DFT | DFT_17)
        x, y = node.given(0).dims, node.outputs[0].dims
        axis, length = op.line(node.inputs)
        inner = math.prod(x[axis + 1 : -1])
        real_result = op.inverse and op.onesided
        used = min(x[axis], length // 2 + 1 if real_result else length)
        source, result = (x[axis] * inner, 1, inner), (y[axis] * inner, 1, inner)
        lines = math.prod(x[:axis]) * inner
        return Transform(lines, used, length, y[axis], max(1, inner), source, result, op.inverse, real_result)


KERNELS = (DFTKernel(),)
