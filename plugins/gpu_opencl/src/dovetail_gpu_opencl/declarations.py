"""Declares the built-in functions that a source calls, for compilers that otherwise parse all 18,000 for each program.

PoCL puts Clang's `opencl-c.h` before every source. Its include guard, defined as an option, leaves that out.
"""

import functools
import re
from collections.abc import Iterator, Sequence

__all__ = ["WITHOUT_HEADER", "with_declarations"]

WITHOUT_HEADER = "-D_OPENCL_H_"
_HEAD = """\
#define __ovld __attribute__((overloadable))
#define __conv __attribute__((convergent))
#define __purefn __attribute__((pure))
#define __cnfn __attribute__((const))
"""
_WORD = re.compile(r"[A-Za-z_]\w*")
_IMAGES = re.compile(r"\bimage[123]d_")
_CONVERT = re.compile(r"convert_(u?(?:char|short|int|long)|float|double)(?:2|3|4|8|16)?((?:_sat)?(?:_rt[ezpn])?)")
_MEMORY = re.compile(r"(vload|vstore)(?:2|3|4|8|16)?|(vloada?|vstorea?)_half(?:2|3|4|8|16)?(?:_rte)?")

_SIGNED = ("char", "short", "int", "long")
_INTEGERS = tuple(f"{sign}{name}" for name in _SIGNED for sign in ("", "u"))
_FLOATS = ("float", "double")
_WIDTHS = ("", "2", "3", "4", "8", "16")
_VECTORS = _WIDTHS[1:]
_SPACES = ("__global", "__local", "__private")

# A signature is the result and the arguments as letters. T: the type; S: its element; N: as many ints; C: the result of a
# comparison; I, U: the signed and unsigned integer of the same size; i: an int.
_TABLE: tuple[tuple[str, tuple[str, ...], Sequence[str], Sequence[str]], ...] = (
    (
        "acos acosh asin asinh atan atanh ceil cos cosh cospi erf exp exp2 expm1 fabs floor log log1p log2 rint round sin sinh "
        "sinpi sqrt tan tanh trunc",
        ("TT",),
        _FLOATS,
        _WIDTHS,
    ),
    ("copysign fmax fmin fmod pow", ("TTT",), _FLOATS, _WIDTHS),
    ("fmax fmin", ("TTS",), _FLOATS, _VECTORS),
    ("fma", ("TTTT",), _FLOATS, _WIDTHS),
    ("ldexp pown", ("TTN",), _FLOATS, _WIDTHS),
    ("ldexp", ("TTi",), _FLOATS, _VECTORS),
    ("ilogb", ("NT",), _FLOATS, _WIDTHS),
    ("isfinite isinf isnan signbit", ("CT",), _FLOATS, _WIDTHS),
    ("dot", ("STT",), _FLOATS, _WIDTHS[:4]),
    ("max min", ("TTT",), (*_INTEGERS, *_FLOATS), _WIDTHS),
    ("max min", ("TTS",), (*_INTEGERS, *_FLOATS), _VECTORS),
    ("clamp", ("TTTT",), (*_INTEGERS, *_FLOATS), _WIDTHS),
    ("clamp", ("TTSS",), (*_INTEGERS, *_FLOATS), _VECTORS),
    ("select", ("TTTI", "TTTU"), (*_INTEGERS, *_FLOATS), _WIDTHS),
    ("abs", ("UT",), _INTEGERS, _WIDTHS),
    ("clz", ("TT",), _INTEGERS, _WIDTHS),
    ("mul_hi", ("TTT",), _INTEGERS, _WIDTHS),
    ("all any", ("iT",), _SIGNED, _WIDTHS),
)
_WORK_ITEMS = "get_global_id get_global_size get_group_id get_local_id get_local_size get_num_groups"
_ATOMICS = {
    "atomic_add": ("val",),
    "atomic_cmpxchg": ("cmp", "val"),
    "atomic_inc": (),
    "atomic_max": ("val",),
    "atomic_or": ("val",),
}


def with_declarations(source: str, options: Sequence[str]) -> str | None:
    """The source after the declarations of the functions that it or the options name, for a build with `WITHOUT_HEADER`.

    Every overload is declared, so that calls resolve as with the header, except those of half: for devices without cl_khr_fp16.
    None for a source with images, whose functions are not declared.
    """
    if _IMAGES.search(source):
        return None
    words = {word for text in (source, *options) for word in _WORD.findall(text)}
    if "convert_" in words:  # a macro adds one of the types that are named
        elements = {word.rstrip("0123456789") for word in words}.intersection((*_INTEGERS, *_FLOATS))
        words = {*words, *(f"convert_{element}" for element in elements)}
    found = "".join(dict.fromkeys(map(_declared, sorted(words))))
    # Without the extension a literal such as 1.0 is a float: it stays disabled, as the header leaves it.
    begin, end = (f"#ifdef cl_khr_fp64\n#pragma OPENCL EXTENSION cl_khr_fp64 : {x}\n#endif\n" for x in ("enable", "disable"))
    return f"{_HEAD}{begin}{found}{end}{source}"


@functools.cache
def _declared(name: str) -> str:
    """The declarations of a function; of all widths where the name is a part to which a macro adds the width."""
    lines = list(_listed(name))
    if found := _CONVERT.fullmatch(name):
        lines += _conversions(found[1], found[2])
    elif found := _MEMORY.fullmatch(name):
        lines += _accesses(found[1]) if found[1] else _half_accesses(found[2])
    plain = [line for line in lines if "double" not in line]
    doubles = [line for line in lines if "double" in line]
    guarded = ["#ifdef cl_khr_fp64", *doubles, "#endif"] if doubles else []
    return "".join(f"{line}\n" for line in (*plain, *guarded))


def _listed(name: str) -> Iterator[str]:
    for names, signatures, elements, widths in _TABLE:
        if name in names.split():
            for element in elements:
                for width in widths:
                    for signature in signatures:
                        result, *arguments = (_type(letter, element, width) for letter in signature)
                        yield f"{result} __ovld __cnfn {name}({', '.join(arguments)});"
    if name in _WORK_ITEMS.split():
        yield f"size_t __ovld __cnfn {name}(uint);"
    if name == "get_work_dim":
        yield "uint __ovld __cnfn get_work_dim(void);"
    if name == "barrier":
        yield "void __ovld __conv barrier(cl_mem_fence_flags flags);"
    if name == "mem_fence":
        yield "void __ovld mem_fence(cl_mem_fence_flags flags);"
    if name in _ATOMICS:
        for space in _SPACES[:2]:
            for c in ("int", "uint"):
                pointer = f"volatile {space} {c} *" + ("p" if _ATOMICS[name] else "")
                yield f"{c} __ovld {name}({', '.join((pointer, *(f'{c} {value}' for value in _ATOMICS[name])))});"


def _type(letter: str, element: str, width: str) -> str:
    if letter in "Si":
        return element if letter == "S" else "int"
    signed = {"float": "int", "double": "long"}.get(element, element.removeprefix("u"))
    if letter == "C":
        return signed + width if width else "int"
    return {"T": element, "N": "int", "I": signed, "U": f"u{signed}"}[letter] + width


def _conversions(element: str, how: str) -> Iterator[str]:
    for width in _WIDTHS:
        for source in (*_INTEGERS, *_FLOATS):
            yield f"{element}{width} __ovld __cnfn convert_{element}{width}{how}({source}{width});"


def _accesses(name: str) -> Iterator[str]:
    for width in _VECTORS:
        for element in (*_INTEGERS, *_FLOATS):
            if name == "vstore":
                yield from (f"void __ovld vstore{width}({element}{width}, size_t, {space} {element} *);" for space in _SPACES)
            else:
                spaces = ("__constant", *_SPACES)
                yield from (f"{element}{width} __ovld __purefn vload{width}(size_t, const {s} {element} *);" for s in spaces)


def _half_accesses(name: str) -> Iterator[str]:
    for width in _VECTORS if name.endswith("a") else _WIDTHS:
        if name.startswith("vload"):
            spaces = ("__constant", *_SPACES)
            yield from (f"float{width} __ovld __purefn {name}_half{width}(size_t, const {s} half *);" for s in spaces)
            continue
        for rounding in ("", "_rte"):
            for c in _FLOATS:
                yield from (f"void __ovld {name}_half{width}{rounding}({c}{width}, size_t, {s} half *);" for s in _SPACES)
