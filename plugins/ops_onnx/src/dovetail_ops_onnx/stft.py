"""STFT: https://onnx.ai/onnx/operators/onnx__STFT.html."""

import numpy as np

from dovetail.op import FLOATS, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import scalar, wide
from dovetail_ops_onnx._fourier import check_signal, transformed
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._shapes import known_ints
from dovetail_ops_onnx._types import INDICES, Array, Types


class STFT(Operator):
    """Frames of a signal [N, length, 1 or 2], each multiplied by a window and transformed: [N, frames, frequencies, 2].

    A real signal may leave its last axis out, as onnxruntime and the exporter of PyTorch have it.
    """

    since = 17
    inputs = ("signal: T1", "frame_step: T2", "window?: T1", "frame_length?: T2")
    outputs = ("output: T1",)
    types = {"T1": FLOATS, "T2": INDICES}

    onesided: bool = True

    def infer(
        self, x: TensorType, step: TensorType, window: TensorType | None = None, length: TensorType | None = None
    ) -> TensorType:
        """[N, frames, frequencies, 2]."""
        if x.rank == 2:
            x = x.with_shape((*x.dims, 1))
        check_signal(x)
        if x.rank != 3:
            raise ShapeError(f"input 'signal' is {x}; accepted: [N, length], [N, length, 1] or [N, length, 2]")
        for name, given in (("frame_step", step), ("frame_length", length)):
            if given is not None:
                scalar(given, name)
        size = None if length is None else known_ints(length, "frame_length")[0]
        count, size = _frames(x.dims[1], known_ints(step, "frame_step")[0], None if window is None else window.dims, size)
        return x.with_shape((x.dims[0], count, size // 2 + 1 if self.onesided else size, 2))

    def frames(self, inputs: Types) -> tuple[int, int]:
        """The step and the length of the frames of a typed node, whose values are known."""
        x, step, window, length = (*inputs, None, None)[:4]
        assert x is not None
        assert step is not None
        size = known_ints(length, "frame_length")[0] if length else window.dims[0] if window else x.dims[1]
        return known_ints(step, "frame_step")[0], size

    def real_frames(self, inputs: Types) -> tuple[int, int] | None:
        """The step and the length of the frames, where the first half of a real transform is asked for."""
        x = inputs[0]
        assert x is not None
        return None if not self.onesided or (x.rank == 3 and x.dims[2] != 1) else self.frames(inputs)

    def reference(self, x: Array, step: Array, window: Array | None = None, length: Array | None = None) -> Array:
        """A Fourier transform of each frame."""
        x = x if x.ndim == 3 else x[..., None]
        hop = int(step.reshape(()))
        size = None if length is None else int(length.reshape(()))
        count, size = _frames(x.shape[1], hop, None if window is None else window.shape, size)
        places = hop * np.arange(count)[:, None] + np.arange(size)
        frames = wide(x)[:, places]
        if window is not None:
            with np.errstate(all="ignore"):
                frames = frames * wide(window)[:, None]
        return rounded(transformed(frames, 2, size, False, self.onesided), x.dtype)


def _frames(signal: int, step: int, window: tuple[int, ...] | None, length: int | None) -> tuple[int, int]:
    """How many frames there are, and of which length."""
    size = length if length is not None else signal if window is None else window[0] if window else 0
    if window is not None and window != (size,):
        raise ShapeError(f"input 'window' has shape {list(window)}; accepted: [{size}], the length of a frame")
    if step < 1 or not 1 <= size <= signal:
        raise OperatorError(f"frame_step is {step}, frame_length {size}; accepted: 1 or more, and 1 to {signal}")
    return 1 + (signal - size) // step, size
