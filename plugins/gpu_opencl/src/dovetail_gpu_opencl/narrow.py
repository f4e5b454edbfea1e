"""Data types that OpenCL C lacks, stored in bytes and shorts: bfloat16, floats of 8 and 4 bits, integers of 4 and 2 bits.

Each has a C name, a typedef of what holds it, and two functions: `from_<name>` to float (or char, uchar) and `to_<name>`, which
rounds to the nearest, halves to even. Numbers that are too large become the infinity, without one NaN, without both the largest
number, and without NaN that is a zero, all as in ml_dtypes. Whole numbers keep their low bits.
"""

from dovetail.dataclass import dataclass
from dovetail.device import DType

__all__ = ["NARROW", "VALUES", "is_narrow", "largest", "typedefs"]


@dataclass(frozen=True, slots=True)
class Minifloat:
    """A float of sign, exponent and `mantissa` bits: numbers up to that with the bits `most`, an `infinity` or 0, and the `nan`
    that is written (0: there is none; with `unsigned_zero` it takes the place of -0, elsewhere all bits above are NaN)."""

    mantissa: int
    bias: int
    bits: int
    most: int
    infinity: int
    nan: int
    unsigned_zero: bool = False

    def largest(self) -> float:
        """The largest number."""
        exponent, fraction = divmod(self.most, 1 << self.mantissa)
        return float((1 + fraction / (1 << self.mantissa)) * 2.0 ** (exponent - self.bias))

    def source(self, name: str) -> str:
        """The typedef and the functions."""
        sign, m, one = 1 << (self.bits - 1), self.mantissa, 1 << self.mantissa
        above = f"{self.infinity}" if self.infinity else f"{self.nan}" if self.nan else f"{self.most}"
        special = f"  if (bits == {self.infinity}) return b & {sign} ? -INFINITY : INFINITY;\n" if self.infinity else ""
        if self.unsigned_zero:
            special += f"  if (b == {sign}) return NAN;\n"
        elif self.nan:
            special += f"  if (bits > {self.infinity or self.most}) return NAN;\n"
        no_number = f"{self.nan} | sign" if self.nan else f"sign ^ {sign}"
        signed = "(bits ? bits | sign : 0)" if self.unsigned_zero else "(bits | sign)"
        over = f"{sign}" if self.unsigned_zero else f"({above} | sign)"
        return f"""typedef uchar {name};
static float from_{name}(uchar b) {{
  const int bits = b & {sign - 1}, e = bits >> {m}, f = bits & {one - 1};
{special}  const float x = e ? ldexp((float)({one} + f), e - {self.bias + m}) : ldexp((float)f, {1 - self.bias - m});
  return b & {sign} ? -x : x;
}}
static uchar to_{name}(float x) {{
  const int sign = signbit(x) ? {sign} : 0;
  const float a = fabs(x);
  if (a != a) return {no_number};
  if (isinf(a)) return {over};
  const int e = a < {2.0 ** (1 - self.bias)!r}f ? {1 - self.bias} : ilogb(a);
  const int bits = ((e + {self.bias - 1}) << {m}) + (int)rint(ldexp(a, {m} - e));
  return bits > {self.most} ? {over} : {signed};
}}
"""


_FLOATS = {
    DType.FLOAT8_E4M3FN: Minifloat(3, 7, 8, 0x7E, 0, 0x7F),
    DType.FLOAT8_E4M3FNUZ: Minifloat(3, 8, 8, 0x7F, 0, 0x80, unsigned_zero=True),
    DType.FLOAT8_E5M2: Minifloat(2, 15, 8, 0x7B, 0x7C, 0x7E),
    DType.FLOAT8_E5M2FNUZ: Minifloat(2, 16, 8, 0x7F, 0, 0x80, unsigned_zero=True),
    DType.FLOAT4_E2M1: Minifloat(1, 1, 4, 7, 0, 0),
}
_INTEGERS = {DType.INT4: ("char", 4), DType.UINT4: ("uchar", 4), DType.INT2: ("char", 2), DType.UINT2: ("uchar", 2)}

NARROW = {
    DType.BFLOAT16: "bfloat16",
    **{dtype: f"{dtype.value}_t" for dtype in _FLOATS},
    **{dtype: f"{dtype.value}_t" for dtype in _INTEGERS},
}
"""The C names."""

VALUES = {dtype: c_type for dtype, (c_type, _) in _INTEGERS.items()}
"""The C types that whole numbers are computed in; others are floats."""

_BFLOAT16 = """typedef ushort bfloat16;
static float from_bfloat16(ushort b) { return as_float((uint)b << 16); }
static ushort to_bfloat16(float x) {
  const uint bits = as_uint(x);
  return x != x ? (ushort)(bits >> 16 | 64) : (ushort)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
"""


def is_narrow(dtype: DType) -> bool:
    """True for the types of this module."""
    return dtype in NARROW


def largest(dtype: DType) -> float:
    """The largest number of a float of 8 or 4 bits."""
    return _FLOATS[dtype].largest()


def _integer(name: str, c_type: str, bits: int) -> str:
    low = f"((x) & {(1 << bits) - 1})"
    value = f"({c_type})((char)(x << {8 - bits}) >> {8 - bits})" if c_type == "char" else low
    return f"typedef uchar {name};\nstatic {c_type} from_{name}(uchar x) {{ return {value}; }}\n" + (
        f"static uchar to_{name}({c_type} x) {{ return {low}; }}\n"
    )


_SOURCES = {
    "bfloat16": _BFLOAT16,
    **{NARROW[dtype]: form.source(NARROW[dtype]) for dtype, form in _FLOATS.items()},
    **{NARROW[dtype]: _integer(NARROW[dtype], *form) for dtype, form in _INTEGERS.items()},
}


def typedefs(text: str) -> str:
    """The source of the types that a program names."""
    return "".join(source for name, source in _SOURCES.items() if name in text)
