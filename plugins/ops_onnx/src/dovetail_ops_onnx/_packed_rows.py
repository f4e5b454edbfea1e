"""A few rows times a matrix of 4 or 8 bits in blocks, by machine code that does not unpack the matrix in memory (AVX2, FMA).

NumPy unpacks numbers in several passes over memory. The code takes 64 or 32 columns of a block at a time: it widens bytes to
integers, splits those of 4 bits into halves, converts them to floats, and adds up their products by numbers of the rows. The
sums of the block are multiplied by its scales and added to the results.
"""

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, HostConfig, HostKernel, TensorType
from dovetail_ops_onnx._machine_code import jump, loaded
from dovetail_ops_onnx._one_block import once

if TYPE_CHECKING:
    from dovetail_ops_onnx.mat_mul_blocks import MatMulBlocks

__all__ = ["PackedRows", "native", "takes"]

Array = NDArray[Any]
Call = Callable[[], object]

_FEW = 16
"""Rows up to which the code is faster than products of unpacked parts by BLAS."""

_LANES = 8
"""Columns of a vector."""

_ENTER = (
    "53 55"  # push rbx; push rbp
    "488b37 4c8b4f08 4c8b5710"  # mov rsi, [rdi]; mov r9, [rdi + 8]; mov r10, [rdi + 16]
    "488b5718 4c8b5f20 4c8b4728"  # mov rdx, [rdi + 24]; mov r11, [rdi + 32]; mov r8, [rdi + 40]
    "b80f000000 c5796ef8 c4427d58ff"  # mov eax, 15; vmovd xmm15, eax; vpbroadcastd ymm15, xmm15
)
_LEAVE = "c5f877 5d 5b c3"  # vzeroupper; pop rbp; pop rbx; ret
"""One argument: the address of nine numbers in rdi. They are the addresses of the rows, of the matrix, of its scales, of the sums
to begin with and of the results, the number of columns, the address behind the scales, the bytes of a column in a block, and
those between two rows of results. Rows are float32 [blocks, bytes, numbers of a byte, rows]: those that meet a byte are adjacent.
"""


def _function(numbers: int, widen: int, rows: int, vectors: int) -> bytes:
    """The code for so many numbers in a byte, which an instruction widens, and so many rows.

    It takes so many vectors of columns at a time, then the last ones one by one. Sums are in ymm0 to 7, numbers of the rows from
    ymm8 on, those of the matrix in ymm12 and 13.
    """
    parts = [_columns(_bytes(numbers, widen, rows, count), rows, count) for count in (vectors, 1)]
    block = bytes.fromhex("31c0") + b"".join(parts)  # xor eax, eax
    step = {1: "488d3486", 2: "488d34c6"}[numbers]  # lea rsi, [rsi + rax * 4] or [rsi + rax * 8]
    block += bytes.fromhex("488b4738" + rows * step)  # mov rax, [rdi + 56]
    block += bytes.fromhex("490fafc0 4901c1 4f8d1482")  # imul rax, r8; add r9, rax; lea r10, [r10 + r8 * 4]
    block += bytes.fromhex(f"4883c2{4 * rows:02x} 4c3b5730")  # add rdx, 4 * rows; cmp r10, [rdi + 48]
    return bytes.fromhex(_ENTER) + block + jump("0f82", -len(block)) + bytes.fromhex(_LEAVE)  # jb block


def _columns(sums: bytes, rows: int, vectors: int) -> bytes:
    """A loop over columns while so many vectors are left, whose `sums` are added to the results."""
    begin = "498d0c01 4889f3 488b6f38"  # lea rcx, [r9 + rax]; mov rbx, rsi; mov rbp, [rdi + 56]
    end = "498d0c83"  # lea rcx, [r11 + rax * 4]
    for row in range(rows):
        lead = vectors * row
        begin += f"c4e27d18{0x42 + 8 * lead:02x}{4 * row:02x}"  # vbroadcastss lead, [rdx + 4 * row]
        begin += "".join(f"c5fc28{0xC0 + 8 * (lead + v) + lead:02x}" for v in range(1, vectors))  # vmovaps other, lead
        for v in range(vectors):
            at, register = (32 * v).to_bytes(4, "little").hex(), f"{0x81 + 8 * (lead + v):02x}"
            end += f"c4417c10a482{at}"  # vmovups ymm12, [r10 + rax * 4 + 32 * v]
            end += f"c4e21da8{register}{at} c5fc11{register}{at}"  # vfmadd213ps sum, ymm12, [rcx + 32 * v]; vmovups that, sum
        end += "48034f40"  # add rcx, [rdi + 64]
    end += f"4883c0{_LANES * vectors:02x}"  # add rax, 8 * vectors
    body = bytes.fromhex(begin) + sums + bytes.fromhex(end)
    head = bytes.fromhex(f"488d48{_LANES * vectors:02x} 4c39c1")  # lea rcx, [rax + 8 * vectors]; cmp rcx, r8
    out = jump("0f87", len(body) + 5)  # ja behind
    return head + out + body + jump("e9", -(len(head) + len(out) + len(body)))


def _bytes(numbers: int, widen: int, rows: int, vectors: int) -> bytes:
    """A loop over the bytes of a block in these columns."""
    code = ""
    for row in range(rows):
        for part in range(numbers):  # vbroadcastss ymm8 + 2 * row + part, [rbx + 4 * (rows * part + row)]
            code += f"c4627d18{0x43 + 8 * (2 * row + part):02x}{4 * (rows * part + row):02x}"
    for v in range(vectors):
        code += f"c4627d{widen:02x}61{_LANES * v:02x}"  # vpmovzxbd or vpmovsxbd ymm12, [rcx + 8 * v]
        if numbers > 1:
            code += (
                "c4c11572d404 c4411ddbe7 c4417c5bed"  # vpsrld ymm13, ymm12, 4; vpand ymm12, ymm12, ymm15; vcvtdq2ps ymm13, ymm13
            )
        code += "c4417c5be4"  # vcvtdq2ps ymm12, ymm12
        for row in range(rows):
            pair = 0xC0 + 8 * (vectors * row + v) + 2 * row
            code += f"c4c21db8{pair:02x}"  # vfmadd231ps sum, ymm12, low
            code += f"c4c215b8{pair + 1:02x}" * (numbers - 1)  # vfmadd231ps sum, ymm13, high
    code += "0f188900010000 4c01c1"  # prefetcht0 [rcx + 256], as processors follow few lines at once; add rcx, r8
    found = bytes.fromhex(code + f"4883c3{4 * numbers * rows:02x} 48ffcd")  # add rbx, 4 * numbers * rows; dec rbp
    return found + jump("0f85", -len(found))  # jnz


_UNSIGNED, _SIGNED = 0x31, 0x21
_KINDS = {(4, DType.UINT8): (2, _UNSIGNED), (8, DType.UINT8): (1, _UNSIGNED), (8, DType.INT8): (1, _SIGNED)}
"""By bits and type the numbers in a byte, and the last byte of the instruction that widens it."""

FUNCTIONS = tuple(_function(*kind, *size) for kind in _KINDS.values() for size in ((1, 8), (2, 4)))
"""For each kind those for one row and for two."""


@cache
def native() -> dict[tuple[int, DType], list[Callable[[int], None]]] | None:
    """The functions of each kind for one row and for two; None where the processor or the system has none."""
    found = loaded(FUNCTIONS, "AVX2", "FMA3")
    if found is None:
        return None
    prototype = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
    return {kind: [prototype(at) for at in found[2 * index : 2 * index + 2]] for index, kind in enumerate(_KINDS)}


def takes(op: "MatMulBlocks", a: TensorType, columns: int) -> bool:
    """Whether the code multiplies rows `a` by a matrix with so many columns."""
    if op.bits > 8 or a.dtype is not DType.FLOAT32 or not a.size or math.prod(a.dims[:-1]) > _FEW:
        return False
    return columns > 0 and not columns % _LANES and native() is not None


class PackedRows(HostKernel):
    """Up to 16 rows, in pairs."""

    def configurations(
        self, op: "MatMulBlocks", inputs: Sequence[TensorType | None], outputs: Sequence[TensorType | None]
    ) -> Sequence[HostConfig]:
        a, _, scales, *_ = inputs
        assert a is not None
        assert scales is not None
        return (HostConfig.uniform(inputs, outputs),) if takes(op, a, scales.dims[1]) else ()

    def execute(self, op: "MatMulBlocks", config: HostConfig, inputs: Sequence[Array | None], outputs: Sequence[Any]) -> None:
        self.bind(op, config, inputs, outputs)()

    def bind(
        self, op: "MatMulBlocks", config: HostConfig, inputs: Sequence[Array | None], outputs: Sequence[Any]
    ) -> Callable[[], object]:
        a, q, scales, offsets = inputs
        assert a is not None
        assert q is not None
        assert scales is not None
        (blocks, n), size, height, functions = scales.shape, op.block_size, op.packed_rows, native()
        assert functions is not None
        given = a.reshape(-1, a.shape[-1])
        y, together = outputs[0].reshape(len(given), n), min(2, len(given))
        groups = -(-len(given) // together)
        # Zeros fill up the last block and the last pair.
        is_whole = given.shape == (groups * together, blocks * size)
        rows = given if is_whole else np.zeros((groups * together, blocks * size), np.float32)
        own, results = rows[: len(given), : given.shape[1]], y if len(y) == len(rows) else np.empty((len(rows), n), np.float32)
        near = np.empty((groups, blocks, height, size // height, together), np.float32)
        first = np.zeros((groups, blocks, together), np.float32)
        spread = rows.reshape(groups, together, blocks, size // height, height).transpose(0, 2, 4, 3, 1)
        centre, known = _centre(scales, offsets, 1 << op.bits)
        of_blocks, factors = rows.reshape(len(rows), blocks, size), np.full(size, -(centre or 0), np.float32)
        calls = _calls(functions[op.bits, DType.of(q.dtype)][together - 1], near, q, scales, first, results, known)

        def run() -> None:
            if not is_whole:
                np.copyto(own, given)
            np.copyto(near, spread)
            if offsets is not None and centre is None:
                np.matmul(np.add.reduce(of_blocks, 2), offsets, results)
            else:
                results.fill(0)
                np.copyto(first, np.matmul(of_blocks, factors).reshape(groups, together, blocks).swapaxes(1, 2))
            for call in calls:
                call()
            if results is not y:
                np.copyto(y, results[: len(y)])

        return run


def _calls(
    function: Callable[[int], None], near: Array, q: Array, scales: Array, first: Array, results: Array, known: Any
) -> list[Call]:
    """The calls for groups of rows. They keep the arrays whose addresses they have, and what is known of the matrix."""
    groups, _, height, _, together = near.shape
    n = scales.shape[1]
    parameters = np.empty((groups, 9), np.int64)
    parameters[:, 1:3] = q.ctypes.data, scales.ctypes.data
    parameters[:, 5:] = n, scales.ctypes.data + scales.nbytes, height, 4 * n
    for own, *arrays in zip(parameters, near, first, results.reshape(groups, together, n), strict=True):
        own[[0, 3, 4]] = [one.ctypes.data for one in arrays]
    kept = (near, q, scales, first, results, known)
    return [partial(_call, function, own, kept) for own in parameters]


def _call(function: Callable[[int], None], parameters: Array, _: object) -> None:
    function(parameters.ctypes.data)


def _centre(scales: Array, offsets: Array | None, end: int) -> tuple[int | None, Any]:
    """The offsets, in units of the scales and with the other sign; None where they are several numbers.

    It is found once for a matrix, and kept for as long as the second result is.
    """
    if offsets is None:
        return 0, None

    def found() -> tuple[int | None, list[Array]]:
        with np.errstate(all="ignore"):
            centre = np.rint(-offsets[:1, :1] / scales[:1, :1]).item()
        is_one = 0 <= centre < end and np.array_equal(offsets, scales * np.float32(-centre))
        return int(centre) if is_one else None, [np.zeros(1, np.float32)]

    centre, kept = once([scales, offsets], "centre", found)
    return centre, kept
