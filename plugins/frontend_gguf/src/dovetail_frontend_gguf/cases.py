"""Cases of the operators: blocks decoded number by number, as the comments of ggml-common.h describe them."""

import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.testing import Case
from dovetail_frontend_gguf.formats import FORMATS, Format
from dovetail_frontend_gguf.grids import grid
from dovetail_frontend_gguf.operators import GetRows, MulMat

__all__ = ["get_rows", "mul_mat", "random_rows"]

Array = NDArray[Any]

_HALVES = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q2_K": (80, 82),
    "Q3_K": (108,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
    **dict.fromkeys(("IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"), (0,)),
    "IQ4_NL": (0,),
    "IQ4_XS": (0,),
    "MXFP4": (),
}
"""Where blocks have float16 numbers."""

_CLOSER = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


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
    if kind.name == "MXFP4":
        blocks[..., 0] = rng.integers(120, 130, blocks.shape[:2])
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


def _five(block: bytes, at: int, i: int) -> int:
    return _nibble(block[at + 4 + i % 16], i // 16) | (int.from_bytes(block[at : at + 4], "little") >> i & 1) << 4


def _q5_0(block: bytes) -> list[float]:
    return [(_five(block, 2, i) - 16) * _half(block, 0) for i in range(32)]


def _q5_1(block: bytes) -> list[float]:
    return [_five(block, 4, i) * _half(block, 0) + _half(block, 2) for i in range(32)]


def _q8_0(block: bytes) -> list[float]:
    return [struct.unpack_from("<b", block, 2 + i)[0] * _half(block, 0) for i in range(32)]


def _two(block: bytes, at: int, i: int) -> int:
    return block[at + i // 128 * 32 + i % 32] >> i % 128 // 32 * 2 & 3


def _q2_k(block: bytes) -> list[float]:
    parts = [(_half(block, 80) * (block[part] & 15), _half(block, 82) * (block[part] >> 4)) for part in range(16)]
    return [parts[i // 16][0] * _two(block, 16, i) - parts[i // 16][1] for i in range(256)]


def _q3_k(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        part, third = i // 16, block[i % 32] >> i // 32 & 1
        scale = _nibble(block[96 + part % 8], part // 8) | (block[104 + part % 4] >> part // 4 * 2 & 3) << 4
        found.append(_half(block, 108) * (scale - 32) * (_two(block, 32, i) - (0 if third else 4)))
    return found


def _six_bits(block: bytes, part: int) -> tuple[float, float]:
    """Scale and minimum of a part of Q4_K and Q5_K."""
    six = block[4:16]
    if part < 4:
        scale, least = six[part] & 63, six[part + 4] & 63
    else:
        scale = six[part + 4] & 15 | six[part - 4] >> 6 << 4
        least = six[part + 4] >> 4 | six[part] >> 6 << 4
    return _half(block, 0) * scale, _half(block, 2) * least


def _q4_k(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        part = i // 32
        scale, least = _six_bits(block, part)
        found.append(scale * _nibble(block[16 + part // 2 * 32 + i % 32], part % 2) - least)
    return found


def _q5_k(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        part = i // 32
        scale, least = _six_bits(block, part)
        fifth = block[16 + i % 32] >> part & 1
        found.append(scale * (_nibble(block[48 + part // 2 * 32 + i % 32], part % 2) | fifth << 4) - least)
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


def _iq4_nl(block: bytes) -> list[float]:
    return [_CLOSER[_nibble(block[2 + i % 16], i // 16)] * _half(block, 0) for i in range(32)]


def _iq4_xs(block: bytes) -> list[float]:
    found, high = [], int.from_bytes(block[2:4], "little")
    for i in range(256):
        part = i // 32
        scale = _nibble(block[4 + part // 2], part % 2) | (high >> 2 * part & 3) << 4
        found.append(_half(block, 0) * (scale - 32) * _CLOSER[_nibble(block[8 + part * 16 + i % 16], i % 32 // 16)])
    return found


def _sign(seven: int, i: int) -> int:
    """Of eight signs in seven bits: the last one makes the number of those that are negative even."""
    return -1 if (seven | seven.bit_count() % 2 << 7) >> i & 1 else 1


def _iq2_xxs(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        at, group = 2 + i // 32 * 8, i % 32 // 8
        rest = int.from_bytes(block[at + 4 : at + 8], "little")
        scale = _half(block, 0) * (0.5 + (rest >> 28)) / 4
        found.append(scale * int(grid("iq2_xxs")[block[at + group], i % 8]) * _sign(rest >> 7 * group & 127, i % 8))
    return found


def _iq2_xs(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        place = int.from_bytes(block[2 + i // 8 * 2 : 4 + i // 8 * 2], "little")
        scale = _half(block, 0) * (0.5 + _nibble(block[66 + i // 32], i // 16 % 2)) / 4
        found.append(scale * int(grid("iq2_xs")[place & 511, i % 8]) * _sign(place >> 9, i % 8))
    return found


def _iq2_s(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        at = i // 8
        place = block[2 + at] | (block[66 + at // 4] >> at % 4 * 2 & 3) << 8
        scale = _half(block, 0) * (0.5 + _nibble(block[74 + i // 32], i // 16 % 2)) / 4
        found.append(scale * int(grid("iq2_s")[place, i % 8]) * (-1 if block[34 + at] >> i % 8 & 1 else 1))
    return found


def _iq3_xxs(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        rest = int.from_bytes(block[66 + i // 32 * 4 : 70 + i // 32 * 4], "little")
        scale = _half(block, 0) * (0.5 + (rest >> 28)) / 2
        found.append(scale * int(grid("iq3_xxs")[block[2 + i // 4], i % 4]) * _sign(rest >> 7 * (i % 32 // 8) & 127, i % 8))
    return found


def _iq3_s(block: bytes) -> list[float]:
    found = []
    for i in range(256):
        at = i // 4
        place = block[2 + at] | (block[66 + at // 8] >> at % 8 & 1) << 8
        scale = _half(block, 0) * (1 + 2 * _nibble(block[106 + i // 64], i // 32 % 2))
        found.append(scale * int(grid("iq3_s")[place, i % 4]) * (-1 if block[74 + i // 8] >> i % 8 & 1 else 1))
    return found


def _mxfp4(block: bytes) -> list[float]:
    numbers = [_nibble(block[1 + i % 16], i // 16) for i in range(32)]
    floats = (0, 0.5, 1, 1.5, 2, 3, 4, 6)  # E2M1
    return [(-1 if q & 8 else 1) * floats[q & 7] * 2.0 ** (block[0] - 127) for q in numbers]


_DECODERS = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q2_K": _q2_k,
    "Q3_K": _q3_k,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
    "Q6_K": _q6_k,
    "IQ2_XXS": _iq2_xxs,
    "IQ2_XS": _iq2_xs,
    "IQ2_S": _iq2_s,
    "IQ3_XXS": _iq3_xxs,
    "IQ3_S": _iq3_s,
    "IQ4_NL": _iq4_nl,
    "IQ4_XS": _iq4_xs,
    "MXFP4": _mxfp4,
}
