"""STFT of real signals: a Fourier transform of windows, straight into the result."""

from collections.abc import Iterable, Sequence
from functools import partial

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from dovetail.device import DType, Reason, Refusal, TypedNode
from dovetail_cpu_numpy.kernel import Call, NumpyKernel
from dovetail_cpu_numpy.launch import Launch, Spec, copy
from dovetail_ops_onnx.stft import STFT


class RealFrames(NumpyKernel):
    """The first half of the frequencies, in float32. The reference makes and frees five arrays of the size of the result."""

    name = "rfft"

    def refuse(self, node: TypedNode) -> Refusal | None:
        assert isinstance(node.op, STFT)
        if node.given(0).dtype is not DType.FLOAT32:
            return Refusal(Reason.DTYPE, f"{node.given(0).dtype}; accepted: float32")
        if node.op.real_frames(node.inputs) is None or not node.outputs[0].size:
            return Refusal(Reason.ATTRIBUTE, "accepted: a real signal, one side, known steps and lengths")
        return None

    def scratch(self, node: TypedNode) -> Sequence[Spec]:
        batch, count = node.outputs[0].dims[:2]
        return (((batch, count, _frames(node)[1]), np.dtype(np.float32)),)

    def bind(self, call: Call) -> Iterable[Launch]:
        signal, (windowed,), (step, size) = call.input(0), call.scratch, _frames(call.node)
        frames = sliding_window_view(signal.reshape(signal.shape[:2]), size, 1)[:, ::step]
        window = call.optional(2)
        yield copy(windowed, frames) if window is None else partial(np.multiply, frames, window, windowed)
        result = call.outputs[0].view(np.complex64)[..., 0]
        yield lambda: np.copyto(result, np.fft.rfft(windowed), casting="same_kind")


def _frames(node: TypedNode) -> tuple[int, int]:
    """The step and the length of the frames."""
    assert isinstance(node.op, STFT)
    return node.op.real_frames(node.inputs) or (1, 1)


KERNELS = (RealFrames(),)
