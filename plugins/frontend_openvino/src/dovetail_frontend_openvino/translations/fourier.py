"""Fourier transforms along several axes: one after the other."""

from collections.abc import Sequence

from dovetail.frontend import FormatError
from dovetail_frontend_openvino.call import Call, Table

__all__ = ["TABLE"]


def _axes(call: Call, rank: int) -> list[tuple[int, int]]:
    """Each axis with its length, -1 for as it is."""
    axes = call.axes(1, rank)
    sizes = call.integers(2, "signal_size") if call.has(2) else (-1,) * len(axes)
    if len(sizes) != len(axes) or not axes:
        raise FormatError(f"signal_size is {list(sizes)} for the axes {list(axes)}", hint="accepted: one for each axis")
    return list(zip(axes, sizes, strict=True))


def _along(call: Call, x: str, steps: Sequence[tuple[int, int]], *, inverse: bool, onesided: bool = False) -> str:
    for axis, size in steps:
        length = "" if size == -1 else call.const(size)
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


TABLE: Table = {"DFT": _dft, "IDFT": _idft, "RDFT": _rdft, "IRDFT": _irdft}
