"""Weighted sums of rows by machine code (AVX2, FMA): NumPy gathers the rows in memory first, and multiplies them one by one."""

import ctypes
from collections.abc import Callable
from functools import cache

import numpy as np

from dovetail_ops_onnx._machine_code import jump, loaded
from dovetail_ops_onnx._types import Array

__all__ = ["add_up", "native", "takes"]

_LANES = 8
"""Numbers of a vector."""

_ENTER = (
    "53 55 4154 4155"  # push rbx; push rbp; push r12; push r13
    "4c8b07 4c8b4f08 4c8b5710"  # mov r8, [rdi]; mov r9, [rdi + 8]; mov r10, [rdi + 16]
    "4c8b5f18 488b5720 488b7728"  # mov r11, [rdi + 24]; mov rdx, [rdi + 32]; mov rsi, [rdi + 40]
    "4c8b6730 4989f5"  # mov r12, [rdi + 48]; mov r13, rsi
)
_LEAVE = "c5f877 415d 415c 5d 5b c3"  # vzeroupper; pop r13; pop r12; pop rbp; pop rbx; ret
"""One argument: the address of seven numbers in rdi. They are the addresses of the rows, of their indices and weights
[taps, places] and of the results [places, columns], the numbers of columns, places and taps, of which none is 0.
"""


def _columns(vectors: int) -> bytes:
    """A loop over columns while so many vectors are left: a loop over the taps adds up their parts of the rows in ymm0 to 3."""
    begin = "".join(f"c5{0xFC - 8 * v:02x}57{0xC0 + 9 * v:02x}" for v in range(vectors))  # vxorps sum, sum, sum
    begin += "4c89cb 4c89d5 4c89e7"  # mov rbx, r9; mov rbp, r10; mov rdi, r12
    tap = "488b0b 480fafca 4801c1"  # mov rcx, [rbx]; imul rcx, rdx; add rcx, rax
    tap += "c4627d184500 488d1cf3 488d6cb500"  # vbroadcastss ymm8, [rbp]; lea rbx, [rbx + rsi * 8]; lea rbp, [rbp + rsi * 4]
    for v in range(vectors):
        tap += f"c4c23db8{0x44 + 8 * v:02x}88{32 * v:02x}"  # vfmadd231ps sum, ymm8, [r8 + rcx * 4 + 32 * v]
    taps = bytes.fromhex(tap + "48ffcf")  # dec rdi
    taps += jump("0f85", -len(taps))  # jnz
    end = "".join(f"c4c17c11{0x44 + 8 * v:02x}83{32 * v:02x}" for v in range(vectors))  # vmovups [r11 + rax * 4 + 32 * v], sum
    end += f"4883c0{_LANES * vectors:02x}"  # add rax, 8 * vectors
    body = bytes.fromhex(begin) + taps + bytes.fromhex(end)
    head = bytes.fromhex(f"488d48{_LANES * vectors:02x} 4839d1")  # lea rcx, [rax + 8 * vectors]; cmp rcx, rdx
    out = jump("0f87", len(body) + 5)  # ja behind
    return head + out + body + jump("e9", -(len(head) + len(out) + len(body)))


def _function() -> bytes:
    place = bytes.fromhex("31c0") + _columns(4) + _columns(1)  # xor eax, eax
    place += bytes.fromhex("4983c108 4983c204 4d8d1c93 49ffcd")  # add r9, 8; add r10, 4; lea r11, [r11 + rdx * 4]; dec r13
    return bytes.fromhex(_ENTER) + place + jump("0f85", -len(place)) + bytes.fromhex(_LEAVE)  # jnz place


FUNCTION = _function()


@cache
def native() -> Callable[[int], None] | None:
    """The function; None where the processor or the system has none."""
    found = loaded((FUNCTION,), "AVX2", "FMA3")
    return None if found is None else ctypes.CFUNCTYPE(None, ctypes.c_void_p)(found[0])


def takes(rows: Array) -> bool:
    """Whether it adds up rows of such an array."""
    return rows.dtype == np.float32 and rows.shape[1] % _LANES == 0 and rows.flags.c_contiguous and native() is not None


def add_up(rows: Array, index: Array, weight: Array, y: Array) -> None:
    """y [places, columns]: the sums of the rows at `index` [taps, places], times `weight` of the same shape.

    Arrays are in C order, `index` and `weight` in any. Raises `IndexError` for an index outside the rows.
    """
    function = native()
    assert function is not None
    index, weight = np.ascontiguousarray(index, np.int64), np.ascontiguousarray(weight, np.float32)
    if index.size and index.view(np.uint64).max() >= len(rows):  # as unsigned numbers those below 0 are large, too
        raise IndexError(f"an index is outside of {len(rows)} rows")
    if not index.size:
        y[...] = 0
    elif y.size:
        addresses = [one.ctypes.data for one in (rows, index, weight, y)]
        parameters = np.array([*addresses, y.shape[1], *index.shape[::-1]], np.int64)
        function(parameters.ctypes.data)  # the array has to live until the function returns
