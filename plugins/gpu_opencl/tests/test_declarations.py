"""Declarations of built-in functions: equal to those of the drivers' headers, and machine code that is equal, too."""

import re
import struct
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path

import pytest

from dovetail_gpu_opencl import declarations
from dovetail_gpu_opencl.declarations import WITHOUT_HEADER, with_declarations
from dovetail_gpu_opencl.device import OpenCLDevice
from dovetail_gpu_opencl.launch import Launch
from dovetail_gpu_opencl.program import build_options, built_binary
from dovetail_gpu_opencl.source import load

OTHER = re.compile(r"cl_khr_fp16|__OPENCL_CPP_VERSION__|generic_address_space|integer_dot_product")
"""Parts of a header that a program of OpenCL C 1.2 without halves does not have."""
CONVERSIONS = ("convert_float", "convert_double", "convert_uchar_sat", "convert_long_sat_rtz")
PARTS = ("vload", "vstore", "vload_half", "vloada_half", "vstorea_half")
NAMES = (
    *" ".join(names for names, *_ in declarations._TABLE).split(),
    *declarations._WORK_ITEMS.split(),
    *declarations._ATOMICS,
    *("barrier", "mem_fence", "get_work_dim", "vstore_half"),
    *CONVERSIONS,
    *PARTS,
)


def headers() -> list[Path]:
    """Those of the drivers of this machine: Debian's, and that of the package from PyPI."""
    folders = [Path("/usr")]
    if (found := find_spec("pocl_binary_distribution")) is not None:
        folders += [Path(place) / ".libs" for place in found.submodule_search_locations or ()]
    return [path for path in (folder / "share/pocl/include/opencl-c.h" for folder in folders) if path.exists()]


def machine_code(binary: bytes) -> list[bytes]:
    """The sections of instructions and of constants in the shared objects that a binary of PoCL holds."""
    found = []
    for start in (match.start() for match in re.finditer(b"\x7fELF", binary)):
        (table,), (size, entries) = (
            struct.unpack_from("<Q", binary, start + 0x28),
            struct.unpack_from("<HH", binary, start + 0x3A),
        )
        for at in range(start + table, start + table + entries * size, size):
            _, kind, flags, _, offset, length = struct.unpack_from("<IIQQQQ", binary, at)
            if kind == 1 and flags & 3 == 2:  # PROGBITS that is loaded and never written
                found.append(binary[start + offset : start + offset + length])
    return found


def types(declaration: str) -> str:
    """A declaration without the names of its arguments."""
    head, _, arguments = declaration.replace("unsigned int", "uint").rstrip(");").partition("(")
    # The last word of an argument is its name, unless it is its type: `float`, `const __global half *`, `float x`, `half *p`.
    named = re.compile(r"(?<=\*)\w+$|(?<=\w) (?!\w*\*)\w+$")
    return f"{' '.join(head.split())}({', '.join(named.sub('', one.strip()).replace(' ', '') for one in arguments.split(','))})"


def in_header(path: Path) -> dict[str, set[str]]:
    """Name -> declarations of a header as far as they hold for programs of this package."""
    found, conditions = defaultdict(set), list[str]()
    for line in path.read_text().splitlines():
        if line.startswith("#if"):
            conditions.append(line)
        elif line.startswith("#endif"):
            conditions.pop()
        elif (name := re.search(r"\b__ovld\b.*\b(\w+)\([^()]*\);", line)) and not any(map(OTHER.search, conditions)):
            found[name[1]].add(types(line))
    return found


@pytest.mark.parametrize("path", headers(), ids=str)
def test_each_function_has_the_overloads_of_the_drivers_header(path: Path) -> None:
    expected = in_header(path)
    for name in NAMES:
        own = defaultdict(set)
        for line in declarations._declared(name).splitlines():
            if not line.startswith("#"):
                own[line.partition("(")[0].split()[-1]].add(types(line))
        assert own, name
        for each, lines in own.items():
            assert lines == expected[each], each


def test_a_part_to_which_a_macro_adds_a_width_or_a_type_declares_all_that_may_be_meant() -> None:
    declared = with_declarations("#define LOAD(p) CAT(convert_, uint4)(CAT(vload_half, VEC)(0, p))\n", ["-DT=convert_char"])
    assert declared is not None
    assert "float8 __ovld __purefn vload_half8(size_t, const __global half *);" in declared
    assert "uint4 __ovld __cnfn convert_uint4(float4);" in declared
    assert "char16 __ovld __cnfn convert_char16(long16);" in declared
    assert "convert_short" not in declared
    assert "exp" not in declared
    assert with_declarations("__kernel void copy(read_only image2d_array_t from) {}", []) is None


@pytest.mark.parametrize("file", ["softmax.cl", "quantize_linear.cl", "cum_sum.cl"])
def test_the_machine_code_is_that_of_a_build_with_the_header(file: str, device: OpenCLDevice) -> None:
    if not device.caps.parses_header:
        pytest.skip("this driver's header was not tried")
    launch = Launch(file, load(file), file.removesuffix(".cl"), (), (1,))
    options, context = build_options(launch), device.programs._context
    declared = with_declarations(launch.source, options)
    assert declared is not None
    without, whole = built_binary(context, declared, [*options, WITHOUT_HEADER]), built_binary(context, launch.source, options)
    assert machine_code(without)
    assert machine_code(without) == machine_code(whole)
