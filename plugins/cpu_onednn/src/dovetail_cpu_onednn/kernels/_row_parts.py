"""Products of 8-bit numbers in parts of their rows, so that one primitive serves many numbers of rows.

For tiles of registers (AMX) oneDNN unrolls code for all rows of a block, up to 64, and writes it for each number of rows again:
for 384 x 384 weights in 0.3 ms for 16 rows, 0.9 for 64 and 1.3 for 101, where a run takes 4, 9 and 16 us. So the rows are
divided into powers of two, which other numbers of rows share. The last part begins early enough to be whole: some rows are
computed twice, with the same result.
"""

from collections.abc import Sequence
from dataclasses import replace

from dovetail_cpu_onednn.binding import Arg, MemoryDesc
from dovetail_cpu_onednn.descriptors import plain
from dovetail_cpu_onednn.kernel import Argument
from dovetail_cpu_onednn.library import library
from dovetail_cpu_onednn.post_ops import Appended

__all__ = ["appended_for", "argument_for", "has_tiles", "row_parts"]

_TILES = 0xFEF
"""The instructions of AMX, as bits of `dnnl_cpu_isa_t`."""

LEAST = 16
"""The rows of a tile. Primitives for fewer rows are made in 0.1 to 0.2 ms."""

TWICE = 32
"""Rows that may be computed twice in place of another part."""


def has_tiles() -> bool:
    """Whether oneDNN may multiply 8-bit numbers by AMX."""
    return int(library().instructions, 16) & _TILES == _TILES


def row_parts(rows: int, overlap: bool = True) -> Sequence[tuple[int, int]]:
    """Where each part begins, and its number of rows: powers of two, but for few rows, and without `overlap` at the end."""
    parts, start, size = list[tuple[int, int]](), 0, 1 << (max(1, rows).bit_length() - 1)
    while start < rows:
        left = rows - start
        if rows < LEAST or (left < LEAST and not overlap):
            size = left
        while size > LEAST and (size > rows or size // 2 >= left or (size > left and (not overlap or size - left > TWICE))):
            size //= 2
        start = min(start, rows - size)
        parts.append((start, size))
        start += size
    return parts


def argument_for(argument: Argument, start: int, count: int) -> Argument:
    """The argument of a product for some of its rows: of factors and operands with a row for each these, of others all."""
    desc, is_operand = argument.desc, argument.place == "operand"
    if not (argument.arg in (Arg.SRC, Arg.DST) or (is_operand and desc.dims[0] > 1)):
        return argument
    offset = library().nbytes(desc) // desc.dims[0] * start
    return replace(argument, desc=plain((count, *desc.dims[1:]), desc.dtype), offset=offset)


def appended_for(appended: Sequence[Appended], count: int) -> list[Appended]:
    """The post-ops of a product for so many of its rows."""
    found: list[Appended] = []
    for kind, given in appended:
        if kind == "binary":
            algorithm, desc = given
            assert isinstance(desc, MemoryDesc)
            given = algorithm, plain((1 if desc.dims[0] == 1 else count, *desc.dims[1:]), desc.dtype)
        found.append((kind, given))
    return found
