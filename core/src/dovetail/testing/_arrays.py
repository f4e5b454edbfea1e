"""Arrays for the checks: any data type, awkward places in memory, and comparison bit by bit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph.dtype import DType

__all__ = ["TOLERANCE", "VARIANTS", "Guarded", "awkward", "close", "equal", "read_only", "same", "sample"]

TOLERANCE = 1e-4
"""Of random graphs in float32 against float64, relative to the largest value; the largest seen on our devices is 1e-5."""

Array = NDArray[Any]

_NARROW = {DType.UINT4: (0, 16), DType.INT4: (-8, 8), DType.UINT2: (0, 4), DType.INT2: (-2, 2)}
_MINIFLOATS = (DType.FLOAT4_E2M1, DType.FLOAT6_E2M3, DType.FLOAT6_E3M2)
_WORDS = ("", "a", "dovetail", "\N{LATIN SMALL LETTER SHARP S}\N{GREEK SMALL LETTER ALPHA}", "two\nlines")
_SENTINEL = 0xA5


def sample(dtype: DType, shape: tuple[int, ...], rng: np.random.Generator) -> Array:
    """Any bit patterns of the type, NaN and subnormal numbers among them. Raises `UsageError` when NumPy lacks the type."""
    kind = dtype.numpy
    if dtype is DType.STRING:
        return np.array(rng.choice(_WORDS, shape), object).reshape(shape)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(kind)
    if dtype in _NARROW:
        return rng.integers(*_NARROW[dtype], shape).astype(np.int8).astype(kind)
    if dtype in _MINIFLOATS:
        return rng.choice(np.array([-1.0, -0.5, 0.0, 0.5, 1.0, 1.5], np.float32), shape).astype(kind)
    raw = rng.integers(0, 256, (*shape, kind.itemsize), np.uint8)
    return np.ascontiguousarray(raw).view(kind).reshape(shape)


def same(a: Array, b: Array) -> bool:
    """Equal in type, shape and every byte; strings by value."""
    if a.dtype != b.dtype or a.shape != b.shape:
        return False
    return a.tolist() == b.tolist() if a.dtype == object else a.tobytes() == b.tobytes()


def equal(a: Array, b: Array) -> bool:
    """Equal values; any NaN equals any other."""
    floats = a.dtype.kind in "fc"
    return a.shape == b.shape and (np.array_equal(a, b, equal_nan=True) if floats else same(a, b))


def close(got: Array, want: Array, tolerance: float) -> bool:
    """Whether `got` is within `tolerance` of float64 values, relative to the largest of them (at least 1)."""
    if got.shape != want.shape:
        return False
    scale = max(1.0, float(np.max(np.abs(want), initial=0.0)))
    return bool(np.all(np.abs(got.astype(np.float64) - want) <= tolerance * scale))


def read_only(array: Array) -> Array:
    """A copy that refuses to be written."""
    copy = array.copy()
    copy.flags.writeable = False
    return copy


def awkward(array: Array) -> Array:
    """The same values, read-only, with a negative stride on the first axis and gaps on the last."""
    if array.ndim == 0:
        return read_only(array)
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)
    view = wide[::-1, ..., ::2] if array.ndim > 1 else wide[::-2]
    view[...] = array
    view.flags.writeable = False
    return view


def _column_major(array: Array) -> Array:
    return np.asfortranarray(array)


def _big_endian(array: Array) -> Array:
    return array.astype(array.dtype.newbyteorder(">"))


def _unaligned(array: Array) -> Array:
    raw = np.zeros(array.nbytes + 1, np.uint8)
    view = raw[1:].view(array.dtype).reshape(array.shape)
    view[...] = array
    return view


VARIANTS = {
    "read_only": read_only,
    "strided": awkward,
    "column_major": _column_major,
    "big_endian": _big_endian,
    "unaligned": _unaligned,
}
"""Name -> the same values lying otherwise in memory."""


class Guarded:
    """An array between two runs of known bytes; `intact` is whether it and they are unchanged."""

    def __init__(self, values: Array) -> None:
        margin = 64
        self._raw = np.full(values.nbytes + 2 * margin, _SENTINEL, np.uint8)
        self.array: Array = self._raw[margin : margin + values.nbytes].view(values.dtype).reshape(values.shape)
        self.array[...] = values
        self._before = self._raw.copy()

    @property
    def intact(self) -> bool:
        """True while nobody has written the array or the bytes around it."""
        return bool(np.array_equal(self._raw, self._before))
