"""The discrete Fourier transform on tensors whose last axis holds real and imaginary parts, as ONNX has them."""

import numpy as np

from dovetail.op import OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._elementwise import wide
from dovetail_ops_onnx._numerics import rounded
from dovetail_ops_onnx._types import Array


def check_signal(x: TensorType) -> None:
    """Raise `ShapeError` unless the last axis has one (real) or two (complex) elements."""
    if x.rank < 2 or x.dims[-1] not in (1, 2):
        raise ShapeError(f"the input is {x}; accepted: [..., 1] real or [..., 2] complex, of rank 2 or more")


def default_length(size: int, inverse: bool, onesided: bool) -> int:
    """The length of a transform along an axis of `size` when none is given."""
    return 2 * (size - 1) if inverse and onesided else size


def transformed_dims(dims: tuple[int, ...], axis: int, length: int, inverse: bool, onesided: bool) -> tuple[int, ...]:
    """The shape of the transform. Raises `OperatorError` for a length below 1."""
    if length < 1:
        raise OperatorError(f"the length of the transform is {length}; accepted: 1 or more")
    half = onesided and not inverse
    out = [length // 2 + 1 if half and a == axis else length if a == axis else d for a, d in enumerate(dims)]
    return (*out[:-1], 1 if inverse and onesided else 2)


def transformed(x: Array, axis: int, length: int, inverse: bool, onesided: bool) -> Array:
    """The transform along `axis`, cut or filled with zeros to `length`; the inverse is divided by it.

    `onesided` gives the first length / 2 + 1 frequencies; the inverse of these is real.
    Computed in float32, in float64 for float64 (NumPy before 2 computes everything in float64).
    """
    parts = wide(x)
    signal = parts[..., 0] if x.shape[-1] == 1 else parts[..., 0] + 1j * parts[..., 1]
    with np.errstate(all="ignore"):
        if inverse and onesided:
            return rounded(np.fft.irfft(signal, length, axis)[..., None], x.dtype)
        if onesided and x.shape[-1] == 1:
            y = np.fft.rfft(signal, length, axis)  # half the time
        else:
            y = np.fft.ifft(signal, length, axis) if inverse else np.fft.fft(signal, length, axis)
    if onesided and x.shape[-1] != 1:
        y = np.take(y, np.arange(length // 2 + 1), axis)
    return rounded(np.stack((y.real, y.imag), -1), x.dtype)
