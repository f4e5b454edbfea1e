"""Fourier transforms along several axes: one after the other."""

from collections.abc import Sequence

import numpy as np

from dovetail.frontend import FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _axes(call: Call, rank: int) -> list[tuple[int, str]]:
    """Each axis with the name of its length, "" for as it is."""
    axes = call.axes(1, rank)
    if call.has(2) and call.known(2) is None:
        lengths = call.ops("Split", len(axes), call.index_list(2), axis=0, num_outputs=len(axes))
        # Lengths that are computed are those of PyTorch and TensorFlow, which are never -1.
        return [(axis, call.op("Squeeze", length)) for axis, length in zip(axes, lengths, strict=True)]
    sizes = call.integers(2, "signal_size") if call.has(2) else (-1,) * len(axes)
    if len(sizes) != len(axes) or not axes:
        raise FormatError(f"signal_size is {list(sizes)} for the axes {list(axes)}", hint="accepted: one for each axis")
    return [(axis, "" if size == -1 else call.const(size)) for axis, size in zip(axes, sizes, strict=True)]


def _along(call: Call, x: str, steps: Sequence[tuple[int, str]], *, inverse: bool, onesided: bool = False) -> str:
    for axis, length in steps:
        x = call.op("DFT", x, length, call.const(axis), inverse=int(inverse), onesided=int(onesided))
    return x


def _dft(call: Call) -> str:
    return _along(call, call.name(0), _axes(call, call.rank(0) - 1), inverse=False)


def _idft(call: Call) -> str:
    return _along(call, call.name(0), _axes(call, call.rank(0) - 1), inverse=True)


def _rdft(call: Call) -> str:
    """Real numbers: half of the last axis is enough, and the other axes are complex then."""
    *others, last = _axes(call, call.rank(0))
    half = _along(call, call.op("Unsqueeze", call.name(0), call.const([-1])), [last], inverse=False, onesided=True)
    return _along(call, half, others, inverse=False)


def _irdft(call: Call) -> str:
    *others, last = _axes(call, call.rank(0) - 1)
    half = _along(call, call.name(0), others, inverse=True)
    return call.op("Squeeze", _along(call, half, [last], inverse=True, onesided=True), call.const([-1]))


def _stft(call: Call) -> str:
    """Frames of a real signal [batch, length] or [length], with the window in the middle of each: half of the spectrum."""
    size, step, width = call.integer(2, "frame_size"), call.integer(3, "frame_step"), call.size(1, 0)
    if not 0 < width <= size:
        raise FormatError(f"the window has {width} elements, frame_size is {size}", hint="accepted: at most as many")
    alone = call.rank(0) == 1
    signal = call.op("Unsqueeze", call.name(0), call.const([0, -1] if alone else [-1]))
    before = (size - width) // 2
    window = call.op("Pad", call.name(1), call.const([before, size - width - before]), mode="constant")
    frames = call.op("STFT", signal, call.const(step), window, call.const(size), onesided=1)
    if call.bool_attr("transpose_frames"):
        frames = call.op("Transpose", frames, perm=(0, 2, 1, 3))
    return call.op("Squeeze", frames, call.const([0])) if alone else frames


def _istft(call: Call) -> str:
    """Frames of half spectra [(batch,) bins, frames, 2] added up where they belong, divided by the sum of the squared windows."""
    size, step, width = call.integer(2, "frame_size"), call.integer(3, "frame_step"), call.size(1, 0)
    if not 0 < width <= size:
        raise FormatError(f"the window has {width} elements, frame_size is {size}", hint="accepted: at most as many")
    before, dtype, alone = (size - width) // 2, call.dtype(0), call.rank(0) == len(("bins", "frames", "complex"))
    window = call.op("Pad", call.name(1), call.const([before, size - width - before]), mode="constant")
    spectra = call.op("Unsqueeze", call.name(0), call.const([0])) if alone else call.name(0)
    spectra = call.op("Transpose", spectra, perm=(0, 2, 1, 3))
    half = call.op("DFT", spectra, call.const(size), call.const(2), inverse=1, onesided=1)
    frames = call.op("Mul", call.op("Squeeze", half, call.const([-1])), window)
    if call.bool_attr("normalized", False):
        frames = call.op("Mul", frames, call.const(np.array(size**0.5), dtype))
    weights = call.op("Expand", call.op("Mul", window, window), call.op("Shape", frames))
    count = call.op("Sub", call.op("Shape", frames, start=1, end=2), call.const([1]))
    length = call.op("Add", call.op("Mul", count, call.const([step])), call.const([size]))
    total, divisor = (_added_up(call, one, length, size, step) for one in (frames, weights))
    zero = call.const(np.zeros(()), dtype)
    signal = call.op("Div", total, call.op("Where", call.op("Greater", divisor, zero), divisor, call.const(np.ones(()), dtype)))
    margin = size // 2 if call.bool_attr("center", False) else 0
    last = call.const([2**31 - 1])
    if call.has(4):  # as long as is wanted, with zeros behind
        wanted = call.index_list(4)
        signal = call.op("Slice", signal, call.const([margin]), last, call.const([-1]))
        behind = call.op("Max", call.op("Sub", wanted, call.op("Shape", signal, start=-1)), call.const([0]))
        signal = call.op("Pad", signal, call.op("Concat", call.const([0, 0, 0]), behind, axis=0), mode="constant")
        signal = call.op("Slice", signal, call.const([0]), wanted, call.const([-1]))
    elif margin:
        signal = call.op("Slice", signal, call.const([margin]), call.const([-margin]), call.const([-1]))
    return call.op("Squeeze", signal, call.const([0])) if alone else signal


def _added_up(call: Call, frames: str, length: str, size: int, step: int) -> str:
    """Frames [batch, frames, size] as one signal [batch, length]."""
    image = call.op("Concat", call.const([1]), length, axis=0)
    columns = call.op("Transpose", frames, perm=(0, 2, 1))
    found = call.op("Col2Im", columns, image, call.const([1, size]), strides=(1, step))
    return call.op("Squeeze", found, call.const([1, 2]))


TABLE: Table = {"STFT": _stft, "ISTFT": _istft, "DFT": _dft, "IDFT": _idft, "RDFT": _rdft, "IRDFT": _irdft}
