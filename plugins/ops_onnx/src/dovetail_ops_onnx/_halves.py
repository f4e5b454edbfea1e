"""Conversion between float16 and float32 by the processor's instructions, or by arithmetic on whole arrays.

NumPy converts one number after the other. All give the bits that NumPy gives, but that instructions make signalling NaN quiet.
By instructions both directions take 0.08 ns a number, by arithmetic 0.7 and 1.8, by NumPy 2.0 and 4.5 (2^20 numbers).
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from dovetail_ops_onnx._types import Array

if TYPE_CHECKING:
    from dovetail_ops_onnx._f16c import Function

__all__ = ["conversion", "narrowed", "widened"]

BLOCK = 1 << 15
"""Numbers that are converted at once: the steps between input and result stay in the second-level cache."""

LEAST = 1 << 13
"""Numbers from which on arithmetic is faster than NumPy's own conversion, below which calls are what takes time."""

LEAST_NATIVE = 1 << 9
"""The same for instructions, where the addresses of the arrays have to be found first, which takes 2 us."""

_EXPONENT, _MANTISSA = 23, 13
"""Bits of float32's mantissa, and how many of them float16 lacks."""


def conversion(src: Array, dst: Array) -> Callable[[], None]:
    """The call that writes `src` to `dst`, as float32 to float16 or the reverse: arrays in C order that outlive the call."""
    functions = _native()
    if functions is None:
        return partial(_widen if src.dtype == np.float16 else _narrow, src, dst)
    return partial(functions[src.dtype != np.float16], src.ctypes.data, dst.ctypes.data, src.size)


def widened(x: Array) -> Array:
    """float16 as float32."""
    return _converted(x, np.empty(x.shape, np.float32), _widen)


def narrowed(x: Array) -> Array:
    """float32 as float16, halves to even."""
    return _converted(x, np.empty(x.shape, np.float16), _narrow)


def _converted(x: Array, y: Array, convert: Callable[[Array, Array], None]) -> Array:
    if x.size >= LEAST_NATIVE and _native() is not None:
        src = np.ascontiguousarray(x)
        conversion(src, y)()
    else:
        convert(x, y)
    return y


def _native() -> "tuple[Function, Function] | None":
    from dovetail_ops_onnx._f16c import native  # here, because most models have no halves

    return native()


def _widen(x: Array, y: Array) -> None:
    # The exponents of the two differ by 112, also for subnormal numbers, which some libraries make the processor take for 0.
    scale = np.array(2.0**112, np.float32)
    if x.size < LEAST or np.array(2.0**-136, np.float32) * scale == 0:
        np.copyto(y, x)
        return
    for src, dst in _blocks(x, y):
        bits = dst.view(np.int32)
        np.copyto(bits, src.view(np.int16))
        np.left_shift(bits, _MANTISSA, bits)
        np.bitwise_and(bits, -0x70002000, bits)  # the sign, which the conversion to int32 repeated, and 15 bits
        np.multiply(dst, scale, dst)
        if dst.max() >= 65536 or dst.min() <= -65536:  # infinity and NaN
            np.copyto(dst, src)


def _narrow(x: Array, y: Array) -> None:
    if x.size < LEAST:
        np.copyto(y, x, "same_kind")
        return
    magnitude, power, sign = np.empty(BLOCK, np.float32), np.empty(BLOCK, np.int32), np.empty(BLOCK, np.bool_)
    for src, dst in _blocks(x, y):
        n = src.size
        _narrow_block(src, dst, magnitude[:n], power[:n], sign[:n])


def _narrow_block(src: Array, dst: Array, magnitude: Array, power: Array, sign: Array) -> None:
    """One block. With 2^(e + 13) added, a number of the exponent e keeps the 11 bits of its mantissa that float16 has."""
    np.bitwise_and(src.view(np.int32), 0xFF << _EXPONENT, power)
    np.abs(src, magnitude)
    largest = power.max()
    if largest >= (127 + 16) << _EXPONENT:  # 65536 has the bits of infinity. NumPy takes 60 ns for a number that overflows.
        magnitude.clip(0, 65536, magnitude)
    # np.maximum with one number is not vectorised.
    power.clip((127 - 14) << _EXPONENT, (127 + 16) << _EXPONENT, power)
    np.add(power, _MANTISSA << _EXPONENT, power)
    np.add(magnitude, power.view(np.float32), magnitude)
    mantissa = magnitude.view(np.int32)  # in its lower 16 bits, where those of power are 0
    np.right_shift(power, _MANTISSA, power)
    np.add(mantissa, power, mantissa)
    bits = dst.view(np.uint16)
    np.copyto(bits, mantissa, casting="unsafe")
    np.subtract(bits, np.uint16((127 - 14 + _MANTISSA) << 10 & 0xFFFF), bits)
    np.signbit(src, sign)
    signs = power.view(np.uint16)[: src.size]
    np.copyto(signs, sign)
    np.left_shift(signs, 15, signs)
    np.bitwise_or(bits, signs, bits)
    if largest == 0xFF << _EXPONENT:  # infinity or NaN, of which bits stay
        places = np.flatnonzero(np.isnan(src))
        dst[places] = src[places]


def _blocks(x: Array, y: Array) -> Iterator[tuple[Array, Array]]:
    """Parts of both as vectors."""
    src, dst = np.ascontiguousarray(x).reshape(-1), y.reshape(-1)
    return ((src[at : at + BLOCK], dst[at : at + BLOCK]) for at in range(0, src.size, BLOCK))
