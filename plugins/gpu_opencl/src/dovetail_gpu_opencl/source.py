"""Kernel source: the .cl files of this package, data types in C, and numbers as C literals."""

import functools
import math
import re
import sys
from collections.abc import Mapping
from importlib import resources

import numpy as np

from dovetail.device import DType
from dovetail_gpu_opencl.capabilities import Capabilities
from dovetail_gpu_opencl.narrow import NARROW, typedefs

__all__ = [
    "C_TYPES",
    "MOVABLE",
    "STORED_TYPES",
    "accumulator",
    "accumulator_bytes",
    "assemble",
    "literal",
    "load",
    "loaded",
    "missing_capability",
    "storage",
    "stored",
    "vector_at",
]

C_TYPES = {
    DType.FLOAT32: "float",
    DType.FLOAT16: "half",
    DType.FLOAT64: "double",
    DType.INT8: "char",
    DType.UINT8: "uchar",
    DType.INT16: "short",
    DType.UINT16: "ushort",
    DType.INT32: "int",
    DType.UINT32: "uint",
    DType.INT64: "long",
    DType.UINT64: "ulong",
    DType.BOOL: "uchar",
}
"""Bools are bytes of 0 and 1, as in NumPy."""

STORED_TYPES = {**C_TYPES, **NARROW}
"""Data type -> C type of elements in memory, including those that are computed in another type (narrow.py)."""

MOVABLE = frozenset(d for d in DType if d is not DType.STRING)
"""The data types that have bytes to move."""

_QUOTIENTS = re.compile(r"\b(?:QUOTIENT|REMAINDER)\(")
_NARROW_NAMES = frozenset(NARROW.values())
_PRAGMAS = {
    "half": "#pragma OPENCL EXTENSION cl_khr_fp16 : enable\n",
    "double": "#pragma OPENCL EXTENSION cl_khr_fp64 : enable\n",
}


def missing_capability(dtype: DType, caps: Capabilities) -> str:
    """The extension that the device would need for this data type, or an empty string."""
    if dtype is DType.FLOAT16 and not caps.fp16:
        return "cl_khr_fp16"
    return "cl_khr_fp64" if dtype is DType.FLOAT64 and not caps.fp64 else ""


def accumulator(dtype: DType) -> str:
    """The C type that results of this data type are computed in."""
    if dtype.is_float:
        return "double" if dtype is DType.FLOAT64 else "float"
    return "ulong" if dtype is DType.UINT64 else "long"


def accumulator_bytes(dtype: DType) -> int:
    """The size of that C type for a floating-point data type."""
    return 8 if dtype is DType.FLOAT64 else 4


def loaded(c_type: str, pointer: str, index: str) -> str:
    """The element `index` at a pointer to `c_type`; halves as float, by `vload_half`, which needs no extension."""
    if c_type in _NARROW_NAMES:
        return f"from_{c_type}({pointer}[{index}])"
    return f"vload_half({index}, {pointer})" if c_type == "half" else f"{pointer}[{index}]"


def stored(c_type: str, pointer: str, index: str, value: str) -> str:
    """The statement, without semicolon, that puts `value` at `index` as `c_type`, rounded to the nearest."""
    if c_type == "half":
        return f"vstore_half_rte({value}, {index}, {pointer})"
    rounded = f"to_{c_type}" if c_type in _NARROW_NAMES else f"({c_type})"
    return f"{pointer}[{index}] = {rounded}({value})"


def storage(dtype: DType, name: str = "T") -> dict[str, object]:
    """Defines for elements of a data type in memory: `T` its C type, `LOAD_T(p, i)` and `STORE_T(p, i, value)`.

    Kernels that touch their elements through these alone run in float16 on every device. `T_IS_HALF` and `T_IS_BFLOAT16` are
    for those that load vectors.
    """
    c_type = STORED_TYPES[dtype]
    defines: dict[str, object] = {
        name: c_type,
        f"LOAD_{name}(p, i)": loaded(c_type, "(p)", "(i)"),
        f"STORE_{name}(p, i, v)": stored(c_type, "(p)", "(i)", "v"),
    }
    if dtype is DType.BFLOAT16:
        return {**defines, f"{name}_IS_BFLOAT16": True}
    return {**defines, f"{name}_IS_HALF": True, "HALF_STORAGE": True} if c_type == "half" else defines


def literal(value: float, c_type: str) -> str:
    """A number as a literal of float or double, exact, infinities and NaN included."""
    suffix = "f" if c_type == "float" else ""
    with np.errstate(over="ignore"):
        number = float(np.float32(value)) if suffix else float(value)
    if math.isnan(number):
        return f"({c_type})NAN"
    if math.isinf(number):
        return f"({c_type}){'-' if number < 0 else ''}INFINITY"
    return f"({number!r}{suffix})" if math.copysign(1, number) < 0 else f"{number!r}{suffix}"  # it may follow another minus


def vector_at(c_type: str, vec: int, pointer: str, *, written: bool = False) -> str:
    """The `vec` elements at a pointer of any alignment, to read or to assign.

    Not vload and vstore: some drivers leave them as function calls, which spill every register.
    """
    qualifier = "" if written else "const "
    return f"((__global {qualifier}packed_{c_type}{vec}*)({pointer}))->v"


def _packed_types(text: str) -> str:
    used = sorted(set(re.findall(r"packed_([a-z]+)(\d+)", text)))
    return "".join(f"typedef struct __attribute__((packed)) {{ {t}{n} v; }} packed_{t}{n};\n" for t, n in used)


@functools.cache
def load(file: str) -> str:
    """The text of `cl/<file>`, with those files in it that it includes."""
    text = (resources.files("dovetail_gpu_opencl") / "cl" / file).read_text(encoding="utf-8")
    return re.sub(r'^#include "(\w+\.cl)"\n', lambda match: load(match[1]), text, flags=re.MULTILINE)


def assemble(file: str, defines: Mapping[str, object], *fragments: str) -> str:
    """`#define` lines, generated fragments and the kernel file as one source; bools are defined as 1 or left out.

    The extensions that `half` and `double` need are enabled; that of `half` not with `HALF_STORAGE`, which says that halves are
    only pointed to.
    """
    lines = [f"#define {name} {1 if value is True else value}\n" for name, value in defines.items() if value is not False]
    return _assembled(file, "".join(lines), "".join(fragments), bool(defines.get("HALF_STORAGE")))


@functools.lru_cache(512)
def _assembled(file: str, text: str, generated: str, half_storage: bool) -> str:
    """The source; kept, because a model has the same for all sizes."""
    used = [c_type for c_type in _PRAGMAS if c_type in text or c_type in generated]
    pragmas = "".join(_PRAGMAS[c_type] for c_type in used if not (c_type == "half" and half_storage))
    quotients = load("quotients.cl") if _QUOTIENTS.search(text + generated) else ""
    types = typedefs(text + generated) + _packed_types(generated)
    source = f"{pragmas}{quotients}{types}{text}{generated}{load(file) if file else ''}"
    return sys.intern(source)  # the hundreds of launches of a model share some ten texts of 7 kB
