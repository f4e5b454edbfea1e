"""STFT of real signals: NumPy's Fourier transform of windows, straight into the result."""

from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dovetail.device import Accepted, DType, Reason, Refusal, TypedNode
from dovetail_cpu_onednn.python_kernel import Array, Call, PythonKernel, quiet
from dovetail_ops_onnx.stft import STFT


class RealFrames(PythonKernel):
    """The first half of the frequencies, in float32. The reference makes and frees five arrays of the size of the result."""

    name = "rfft"

    def supports(self, node: TypedNode) -> Accepted | Refusal:
        assert isinstance(node.op, STFT)
        if node.post_ops:
            return Refusal(Reason.POST_OP, "a transform takes none")
        if node.given(0).dtype is not DType.FLOAT32:
            return Refusal(Reason.DTYPE, f"{node.given(0).dtype}; accepted: float32")
        if node.op.real_frames(node.inputs) is None or not node.outputs[0].size:
            return Refusal(Reason.ATTRIBUTE, "accepted: a real signal, one side, known steps and lengths")
        return Accepted(self.name)

    def bind(self, node: TypedNode, array: Callable[[str], Array]) -> Iterable[Call]:
        assert isinstance(node.op, STFT)
        signal, dst = array(node.node.inputs[0]), array(node.node.outputs[0])
        step, size = node.op.real_frames(node.inputs) or (1, 1)
        frames = sliding_window_view(signal.reshape(signal.shape[:2]), size, 1)[:, ::step]
        windowed, window = np.empty(frames.shape, np.float32), node.node.inputs[2] if len(node.inputs) > 2 else ""
        if window:
            yield quiet(partial(np.multiply, frames, array(window), windowed))
        else:
            yield partial(np.copyto, windowed, frames)
        result = dst.view(np.complex64)[..., 0]
        yield lambda: np.copyto(result, np.fft.rfft(windowed), casting="same_kind")


KERNELS = (RealFrames(),)
