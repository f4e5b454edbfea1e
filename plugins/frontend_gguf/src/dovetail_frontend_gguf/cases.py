"""Cases of the operators: blocks decoded number by number, as the comments of ggml-common.h describe them."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_frontend_gguf.formats import FORMATS, Format
from dovetail_frontend_gguf.operators import GetRows, MulMat

__all__ = ["get_rows", "mul_mat", "random_rows"]

Array = NDArray[Any]

_HALVES = {"Q4_0": (0,), "Q4_1": (0, 2), "Q8_0": (0,), "Q4_K": (0, 2), "Q6_K": (208,)}
"""Where blocks have float16 numbers."""


def mul_mat(rng: np.random.Generator) -> Iterator[Case]:
    """Each format; no rows of A."""
    for kind in FORMATS.values():
        columns = 2 * kind.elements if kind.elements > 1 else 7
        rows = random_rows(rng, kind, 5, columns)
        weights = np.array([decoded(kind.name, bytes(row)) for row in rows])
        a = rng.standard_normal((2, 3, columns)).astype(np.float32)
        op = MulMat(type=kind.name)
        bound = 2e-5 * float(np.abs(weights).max()) * columns
        yield Case(kind.name, op, (a, rows), ((a @ weights.T).astype(np.float32),), constants=(1,), rtol=1e-4, atol=bound)
    yield Case("batch_0", op, (a[:0], rows), (np.zeros((0, 3, 5), np.float32),), constants=(1,))


def get_rows(rng: np.random.Generator) -> Iterator[Case]:
    """Each format, exactly."""
    for kind in FORMATS.values():
        rows = random_rows(rng, kind, 5, 2 * kind.elements if kind.elements > 1 else 7)
        want = np.array([[decoded(kind.name, bytes(rows[i])) for i in (4, 0, 4)]]).astype(np.float32)
        op = GetRows(type=kind.name)
        yield Case(kind.name, op, (rows, np.array([[4, 0, 4]])), (want,), constants=(0,), rtol=1e-6, atol=1e-6)


def random_rows(rng: np.random.Generator, kind: Format, count: int, columns: int) -> Array:
    """Rows of random blocks, whose floats are of moderate size."""
    if kind.elements == 1:
        numbers = rng.standard_normal((count, columns)).astype(np.float32)
        halves = numbers.astype(np.float16).view(np.uint8) if kind.name == "F16" else numbers.view(np.uint16)[:, 1::2].copy()
        return numbers.view(np.uint8) if kind.name == "F32" else halves.view(np.uint8)
    blocks = rng.integers(0, 256, (count, columns // kind.elements, kind.nbytes)).astype(np.uint8)
    for at in _HALVES[kind.name]:
        half = rng.uniform(-1, 1, (*blocks.shape[:2], 1)).astype("<f2")
        blocks[..., at : at + 2] = half.view(np.uint8)
    return blocks.reshape(count, -1)


def decoded(name: str, row: bytes) -> list[float]:
    """The numbers of a row."""
    if name in ("F32", "F16"):
        return [x for (x,) in struct.iter_unpack("<f" if name == "F32" else "<e", row)]
    if name == "BF16":
        return [struct.unpack("<f", b"\0\0" + row[i : i + 2])[0] for i in range(0, len(row), 2)]
    size = next(kind.nbytes for kind in FORMATS.values() if kind.name == name)
    return [x for at in range(0, len(row), size) for x in _DECODERS[name](row[at : at + size])]


def _half(block: bytes, at: int) -> float:
    return float(struct.unpack_from("<e", block, at)[0])


def _nibble(byte: int, high: int) -> int:
    return byte >> 4 if high else byte & 15


def _q4_0(block: bytes) -> list[float]:
    return [(_nibble(block[2 + i % 16], i // 16) - 8) * _half(block, 0) for i in range(32)]


def _q4_1(block: bytes) -> list[float]:
    return [_nibble(block[4 + i % 16], i // 16) * _half(block, 0) + _half(block, 2) for i in range(32)]


def _q8_0(block: bytes) -> list[float]:
    return [struct.unpack_from("<b", block, 2 + i)[0] * _half(block, 0) for i in range(32)]


def _q4_k(block: bytes) -> list[float]:
    found, six = [], block[4:16]
    for i in range(256):
        part = i // 32
        if part < 4:
            scale, least = six[part] & 63, six[part + 4] & 63
        else:
            scale = six[part + 4] & 15 | six[part - 4] >> 6 << 4
            least = six[part + 4] >> 4 | six[part] >> 6 << 4
        q = _nibble(block[16 + part // 2 * 32 + i % 32], part % 2)
        found.append(_half(block, 0) * scale * q - _half(block, 2) * least)
    return found


def _q6_k(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        half, quarter, rest = i // 128, i % 128 // 32, i % 32
        four = _nibble(block[half * 64 + quarter % 2 * 32 + rest], quarter // 2)
        two = block[128 + half * 32 + rest] >> 2 * quarter & 3
        scale = struct.unpack_from("<b", block, 192 + i // 16)[0]
        found.append(_half(block, 208) * scale * ((four | two << 4) - 32))
    return found


_DECODERS = {"Q4_0": _q4_0, "Q4_1": _q4_1, "Q8_0": _q8_0, "Q4_K": _q4_k, "Q6_K": _q6_k}
