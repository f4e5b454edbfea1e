"""STFT."""

from dovetail.device import TypedNode
from dovetail_gpu_opencl.kernels._fourier import Fourier, Transform
from dovetail_ops_onnx.stft import STFT

__all__ = ["KERNELS"]


class STFTKernel(Fourier):
    """A line for each frame."""

    def transform(self, node: TypedNode) -> Transform:
        assert isinstance(node.op, STFT)
        x, (batch, count, results, _) = node.given(0), node.outputs[0].dims
        step, size = node.op.frames(node.inputs)
        window = node.node.inputs[2] if len(node.node.inputs) > 2 else ""
        source, result = (x.dims[1], step, 1), (count * results, results, 1)
        return Transform(batch * count, size, size, results, max(1, count), source, result, window=window)


KERNELS = (STFTKernel(),)
