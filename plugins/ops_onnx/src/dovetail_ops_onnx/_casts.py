"""Conversion between data types by the rules of ONNX's Cast, and where the standard is open, as documented here."""

from collections.abc import Callable
from typing import Any

import numpy as np

from dovetail.op import DType, OperatorError
from dovetail_ops_onnx._elementwise import converted, finite_range, wide
from dovetail_ops_onnx._types import Array

__all__ = ["cast", "to_integer", "write_integers"]

_FLOAT8 = (DType.FLOAT8_E4M3FN, DType.FLOAT8_E4M3FNUZ, DType.FLOAT8_E5M2, DType.FLOAT8_E5M2FNUZ)
_PACKED = (DType.INT4, DType.UINT4, DType.INT2, DType.UINT2)

_INT32, _INT64 = np.dtype(np.int32), np.dtype(np.int64)

_PART = 1 << 14
"""Numbers that become int32 on the way to 64 bits at a time: these stay in the cache."""


def cast(x: Array, to: DType, *, saturate: bool = True, round_mode: str = "up") -> Array:
    """`x` as `to`: `x` itself when it has the type already.

    Float to integer truncates toward zero; NaN becomes 0, and what is out of range the nearest bound (the rule of OpenCL's
    saturated conversions), but for 4- and 2-bit types, which keep the low bits as integers do. `saturate` and `round_mode` are
    those of ONNX, for 8-bit floats.
    Raises `OperatorError` for a string that is not a number.
    """
    source = DType.of(x.dtype)
    if source is to:
        return x
    with np.errstate(all="ignore"):
        if source is DType.STRING:
            return _from_strings(x, to)
        if to is DType.STRING:
            return _to_strings(wide(x) if source.is_float else x)
        if to is DType.BOOL:
            return wide(x) != 0 if source.is_float else x.astype(np.bool_)
        if source.is_float and to.is_integer:
            # The standard leaves this open, but ONNX's own cases for the packed types expect the low bits.
            return to_integer(wide(x), np.dtype(np.int64)).astype(to.numpy) if to in _PACKED else to_integer(wide(x), to.numpy)
        if to is DType.FLOAT8_E8M0:
            return _to_powers(wide(x).astype(np.float32), saturate, round_mode)
        given = wide(x) if source is DType.FLOAT16 or (source.is_float and source.itemsize == 1) else x
        return converted(_limited(given, to) if saturate and to in _FLOAT8 else given, to.numpy)


def to_integer(x: Any, dtype: np.dtype[Any]) -> Array:
    """Floating-point values truncated toward zero; NaN becomes 0, and what is out of range the nearest bound."""
    given = np.asarray(x)
    if dtype.kind in "iu" and _is_within(_range_of(given), dtype):
        return given.astype(dtype)
    return _saturated(given, dtype)


def write_integers(dst: Array, x: Array) -> None:
    """`to_integer` into an array of NumPy's integers; both in C order."""
    found = _range_of(x)
    if not _is_within(found, dst.dtype):
        np.copyto(dst, _saturated(x, dst.dtype))
    elif dst.dtype.itemsize < _INT64.itemsize or not _is_within(found, _INT32):
        np.copyto(dst, x, "unsafe")
    else:  # processors convert to 64 bits one by one
        src, to = x.reshape(-1), dst.reshape(-1)
        for first in range(0, src.size, _PART):
            np.copyto(to[first : first + _PART], src[first : first + _PART].astype(_INT32), "unsafe")


def _range_of(x: Array) -> tuple[float, float]:
    return _extreme(np.minimum, x), _extreme(np.maximum, x)


def _is_within(found: tuple[float, float], dtype: np.dtype[Any]) -> bool:
    """Whether numbers of this range fit, as most do: NumPy's conversion takes an eighth. NaN fails every comparison."""
    low, high = (int(bound) for bound in finite_range(dtype))
    return low - 1 < found[0] and found[1] < high + 1


def _saturated(given: Array, dtype: np.dtype[Any]) -> Array:
    low, high = (int(bound) for bound in finite_range(dtype))
    if dtype.itemsize <= 2 and given.dtype.itemsize >= 4 and dtype.kind in "iu":  # floats hold both bounds
        limited = np.clip(given, given.dtype.type(low), given.dtype.type(high))
        return np.where(np.isnan(limited), 0, limited).astype(dtype)
    whole = np.trunc(given.astype(np.float64))
    # float64(high) may be rounded up to high + 1, which is out of range: hence the strict comparison with high + 1.
    inside = (whole >= float(low)) & (whole < float(high + 1))
    bound = np.where(whole < 0, np.array(low).astype(dtype), np.array(high).astype(dtype))
    exact = np.where(inside, whole, 0).astype(np.uint64 if low == 0 else np.int64).astype(dtype)
    return np.asarray(np.where(inside | np.isnan(whole), exact, bound)).astype(dtype, copy=False)


def _extreme(ufunc: np.ufunc, x: Array) -> float:
    """The least or greatest element and 0; NaN if there is one. The methods of arrays take 1.5 us longer."""
    return float(ufunc.reduce(x, axis=None, initial=0))


def _limited(x: Array, to: DType) -> Array:
    """The numbers within the range of an 8-bit float, beyond which NumPy's conversion gives NaN or infinities."""
    low, high = finite_range(to.numpy)
    return np.asarray(np.clip(x if DType.of(x.dtype).is_float else x.astype(np.float32), low, high))


def _to_powers(x: Array, saturate: bool, round_mode: str) -> Array:
    # float8_e8m0fnu holds the powers of two from 2^-127 to 2^127 as exponent + 127; 255 is NaN. It has neither zero nor sign.
    mantissa, exponent = np.frexp(np.abs(x))
    above = {"up": mantissa > 0.5, "nearest": mantissa >= 0.75, "down": np.zeros(x.shape, np.bool_)}[round_mode]
    biased = np.where(x == 0, -1, np.where(np.isinf(x), 255, exponent - 1 + above + 127))
    limited = np.clip(biased, 0, 254) if saturate else np.where((biased < 0) | (biased > 254), 255, biased)
    return np.asarray(np.where(np.isnan(x), 255, limited)).astype(np.uint8).view(DType.FLOAT8_E8M0.numpy)


def _to_strings(x: Array) -> Array:
    from dovetail_ops_onnx._strings import in_parts  # here, because few casts are of strings

    found = np.empty(x.shape, object)
    in_parts(lambda dst, part: np.copyto(dst, part.astype(np.str_)), found, x)
    return found


def _from_strings(x: Array, to: DType) -> Array:
    parse: Callable[[str], Any] = _parse_integer if to.is_integer else float
    result = np.empty(x.shape, to.numpy)
    low, high = map(int, finite_range(to.numpy)) if to.is_integer else (-np.inf, np.inf)
    for index, text in np.ndenumerate(x):
        try:
            number = parse(str(text))
            if number < low or number > high:
                raise OverflowError  # NumPy 1 and ml_dtypes would take the lowest bits
            result[index] = number != 0 if to is DType.BOOL else number
        except (ValueError, OverflowError):
            accepted = f"numbers from {low} to {high}" if to.is_integer else "numbers such as '-3.5e2'"
            raise OperatorError(f"the string {str(text)!r} cannot become {to}; accepted: {accepted}") from None
    return result


def _parse_integer(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return int(float(text))
