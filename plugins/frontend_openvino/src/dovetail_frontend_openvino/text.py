"""Numbers, lists and types as IR writes them."""

import re

from dovetail.frontend import Dim, DType, FormatError, printable

__all__ = ["boolean", "decimal", "dimension", "element_type", "integer", "integers", "items", "shape"]

_LARGEST = 2**63 - 1
_INTEGER = re.compile(r"[-+]?[0-9]{1,19}", re.ASCII)
_DECIMAL = re.compile(
    r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]+)?|[-+]?(?:inf|nan|infinity)", re.ASCII | re.IGNORECASE
)
_BOOLEANS = {"true": True, "1": True, "false": False, "0": False}

_TYPES = {
    "f64": DType.FLOAT64,
    "f32": DType.FLOAT32,
    "f16": DType.FLOAT16,
    "bf16": DType.BFLOAT16,
    "i64": DType.INT64,
    "i32": DType.INT32,
    "i16": DType.INT16,
    "i8": DType.INT8,
    "i4": DType.INT4,
    "u64": DType.UINT64,
    "u32": DType.UINT32,
    "u16": DType.UINT16,
    "u8": DType.UINT8,
    "u4": DType.UINT4,
    "u2": DType.UINT2,
    "u3": DType.UINT8,
    "u6": DType.UINT8,
    "boolean": DType.BOOL,
    "string": DType.STRING,
    "f8e4m3": DType.FLOAT8_E4M3FN,
    "f8e5m2": DType.FLOAT8_E5M2,
    "f8e8m0": DType.FLOAT8_E8M0,
    "f4e2m1": DType.FLOAT4_E2M1,
}
"""Names in attributes. Those of ports are upper case, with FP for f and BOOL for boolean."""

_PORTS = {re.sub(r"^F(?=16|32|64)", "FP", name.upper()): dtype for name, dtype in _TYPES.items()} | {"BOOL": DType.BOOL}
_UNSPECIFIED = ("unspecified", "undefined", "dynamic")


def integer(text: str, what: str) -> int:
    """A decimal integer that fits 64 bits."""
    stripped = text.strip(" \t\r\n")
    if not _INTEGER.fullmatch(stripped) or not -_LARGEST - 1 <= int(stripped) <= _LARGEST:
        raise FormatError(f"{what} is '{printable(text)}'", hint="accepted: an integer of 64 bits")
    return int(stripped)


def items(text: str) -> list[str]:
    """The items of a list; none for white space."""
    return [item.strip() for item in text.split(",")] if text.strip() else []


def integers(text: str, what: str) -> tuple[int, ...]:
    """Decimal integers between commas."""
    return tuple(integer(item, what) for item in items(text))


def decimal(text: str, attribute: str) -> float:
    """A decimal number, `inf` or `nan`."""
    if not _DECIMAL.fullmatch(text.strip()):
        raise FormatError(f"the attribute '{attribute}' is '{printable(text)}'", hint="accepted: a number such as 0.5 or 1e-05")
    return float(text)


def boolean(text: str, what: str) -> bool:
    """`true`, `false`, `1` or `0`."""
    value = _BOOLEANS.get(text.strip().lower())
    if value is None:
        raise FormatError(f"{what} is '{printable(text)}'", hint="accepted: true, false, 1, 0")
    return value


def element_type(text: str, what: str) -> DType | None:
    """A type by its name in attributes (`f32`) or ports (`FP32`); None where it is left open."""
    name = text.strip()
    if name.lower() in _UNSPECIFIED:
        return None
    if name.lower() == "nf4":  # constants of it are read as the numbers that the codes stand for
        return DType.FLOAT32
    found = _TYPES.get(name) or _PORTS.get(name) or _TYPES.get(name.lower())
    if found is None:
        raise FormatError(f"{what} is '{printable(text)}'", hint=f"accepted: {', '.join(_TYPES)}")
    return found


def dimension(text: str, what: str) -> Dim:
    """A size; None for `-1`, `?` and intervals such as `1..8`, which are open."""
    stripped = text.strip()
    if stripped in ("?", "-1"):
        return None
    low, dots, high = stripped.partition("..")
    if dots:
        for bound in (low, high):
            if bound and integer(bound, what) < 0:
                raise FormatError(f"{what} is '{printable(text)}'", hint="accepted: a size, -1, ?, or an interval such as 1..8")
        return None
    size = integer(stripped, what)
    if size < 0:
        raise FormatError(f"{what} is {size}", hint="accepted: a size of 0 or more; -1 or ? where it is open")
    return size


def shape(text: str, what: str) -> tuple[Dim, ...] | None:
    """Dimensions between commas; None for `...`, of which not even the rank is known."""
    if text.strip() == "...":
        return None
    inner = text.strip().removeprefix("[").removesuffix("]")
    return tuple(dimension(item, what) for item in items(inner))
