"""The formats of tensors: what is in a block of each, and the numbers that it stands for.

After the block structures of https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h. Numbers are computed in float32.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.frontend import DType
from dovetail_frontend_gguf.blocks import Blocks, joined, number_of
from dovetail_frontend_gguf.grids import iq2_s, iq2_xs, iq2_xxs, iq3_s, iq3_xxs

__all__ = ["FORMATS", "Blocks", "Format"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Format:
    """A format: blocks of `elements` in `nbytes` bytes. `read` takes rows of bytes [rows, bytes of a row]."""

    name: str
    elements: int
    nbytes: int
    read: Callable[[Array], Blocks]


def _halves(packed: Array) -> Array:
    """Bytes [..., n] as numbers [..., 2 n]: first all low halves, then all high ones."""
    return np.concatenate((packed & 15, packed >> 4), -1)


def _q4_0(rows: Array) -> Blocks:
    block = rows.reshape(len(rows), -1, 18)
    scale = number_of(block[..., :2])
    return Blocks(4, 32, joined(_halves(block[..., 2:])), scale, np.float32(-8) * scale)


def _q4_1(rows: Array) -> Blocks:
    block = rows.reshape(len(rows), -1, 20)
    return Blocks(4, 32, joined(_halves(block[..., 4:])), number_of(block[..., :2]), number_of(block[..., 2:4]))


def _q5_0(rows: Array) -> Blocks:
    block = rows.reshape(len(rows), -1, 22)
    return Blocks(8, 32, joined(_fives(block[..., 2:])) - np.int8(16), number_of(block[..., :2]))


def _q5_1(rows: Array) -> Blocks:
    block = rows.reshape(len(rows), -1, 24)
    return Blocks(8, 32, joined(_fives(block[..., 4:])), number_of(block[..., :2]), number_of(block[..., 2:4]))


def _fives(packed: Array) -> Array:
    """Numbers 0 to 31 of 32 elements [..., 20]: the fifth bits, one after the other, then the other four."""
    high = np.unpackbits(packed[..., :4], axis=-1, bitorder="little")
    numbers: Array = _halves(packed[..., 4:]) | (high << 4)
    return numbers.view(np.int8)


def _q8_0(rows: Array) -> Blocks:
    block = rows.reshape(len(rows), -1, 34)
    return Blocks(8, 32, joined(block[..., 2:].view(np.int8)), number_of(block[..., :2]))


def _q2_k(rows: Array) -> Blocks:
    """Blocks of 256 in sixteen parts of 16, whose scales and minima have four bits."""
    block = rows.reshape(len(rows), -1, 84)
    scale, least = (number_of(block[..., i : i + 2])[..., None] for i in (80, 82))
    scales, minima = block[..., :16] & 15, block[..., :16] >> 4
    return Blocks(4, 16, joined(_twos(block[..., 16:80])), joined(scale * scales), joined(-least * minima))


def _q3_k(rows: Array) -> Blocks:
    """Blocks of 256 in sixteen parts of 16: two bits in one place, one in another, scales of six bits."""
    block = rows.reshape(len(rows), -1, 110)
    third = (block[..., None, :32] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    numbers = _twos(block[..., 32:96]) | (third.reshape(*block.shape[:2], 256) << 2)
    high = (block[..., None, 104:108] >> _PAIRS[:, None]) & 3
    six = _halves(block[..., 96:104]) | (high.reshape(*block.shape[:2], 16) << 4)
    scales = joined(number_of(block[..., 108:])[..., None] * (six.view(np.int8) - np.int8(32)))
    return Blocks(4, 16, joined(numbers), scales, np.float32(-4) * scales)


def _twos(packed: Array) -> Array:
    """256 numbers 0 to 3 of 64 bytes: of 32 bytes first all lowest pairs of bits, then the next ones."""
    pairs = packed.reshape(*packed.shape[:2], 2, 1, 32) >> _PAIRS[:, None]
    return np.asarray(pairs.reshape(*packed.shape[:2], 256) & 3)


def _q4_k(rows: Array) -> Blocks:
    """Blocks of 256 in eight parts of 32, whose scales and minima have six bits."""
    block = rows.reshape(len(rows), -1, 144)
    numbers = _halves(block[..., 16:].reshape(*block.shape[:2], 4, 32))
    return Blocks(4, 32, joined(numbers), *_six_bits(block))


def _q5_k(rows: Array) -> Blocks:
    """As Q4_K, with the fifth bits of all parts in 32 bytes, one bit of each for each part."""
    block = rows.reshape(len(rows), -1, 176)
    four = _halves(block[..., 48:].reshape(*block.shape[:2], 4, 32)).reshape(*block.shape[:2], 8, 32)
    fifth = (block[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None]) & 1
    return Blocks(8, 32, joined((four | (fifth << 4)).view(np.int8)), *_six_bits(block))


def _six_bits(block: Array) -> tuple[Array, Array]:
    """Scales and offsets of the eight parts of blocks that begin with two float16 and twelve bytes."""
    packed = block[..., 4:16]
    low, middle, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate((low & 63, (high & 15) | ((low >> 6) << 4)), -1)
    minima = np.concatenate((middle & 63, (high >> 4) | ((middle >> 6) << 4)), -1)
    scale, least = (number_of(block[..., i : i + 2])[..., None] for i in (0, 2))
    return joined(scale * scales), joined(-least * minima)


def _q6_k(rows: Array) -> Blocks:
    """Blocks of 256 in sixteen parts of 16: four bits in one place, two in another, scales of eight bits."""
    block = rows.reshape(len(rows), -1, 210)
    low = block[..., :128].reshape(*block.shape[:2], 2, 1, 64)
    high = block[..., 128:192].reshape(*block.shape[:2], 2, 1, 32)
    four = np.concatenate((low & 15, low >> 4), 3).reshape(*block.shape[:2], 2, 4, 32)
    two = (high >> _PAIRS[:, None]) & 3
    numbers = (four | (two << 4)).view(np.int8) - np.int8(32)
    scales = number_of(block[..., 208:])[..., None] * block[..., 192:208].view(np.int8)
    return Blocks(8, 16, joined(numbers), joined(scales))


def _iq4_nl(rows: Array) -> Blocks:
    """Sixteen numbers that are closer near zero."""
    block = rows.reshape(len(rows), -1, 18)
    return Blocks(8, 32, joined(_CLOSER[_halves(block[..., 2:])]), number_of(block[..., :2]))


def _iq4_xs(rows: Array) -> Blocks:
    """Blocks of 256 in eight parts of 32 numbers as in IQ4_NL, with scales of six bits."""
    block = rows.reshape(len(rows), -1, 136)
    high = (block[..., 2:4, None] >> _PAIRS) & 3
    low = np.stack((block[..., 4:8] & 15, block[..., 4:8] >> 4), -1)
    six = low.reshape(*block.shape[:2], 8) | (high.reshape(*block.shape[:2], 8) << 4)
    numbers = _CLOSER[_halves(block[..., 8:].reshape(*block.shape[:2], 8, 16))]
    return Blocks(8, 32, joined(numbers), joined(number_of(block[..., :2])[..., None] * (six.view(np.int8) - np.int8(32))))


def _mxfp4(rows: Array) -> Blocks:
    """Floats of four bits, doubled, with a power of two for 32 of them."""
    block = rows.reshape(len(rows), -1, 17)
    return Blocks(8, 32, joined(_FLOATS4[_halves(block[..., 1:])]), np.ldexp(np.float32(1), block[..., 0].astype(np.int32) - 128))


_PAIRS = np.array([0, 2, 4, 6], np.uint8)
_CLOSER = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
_FLOATS4 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)


def _floats(dtype: Any) -> Callable[[Array], Blocks]:
    kind = np.dtype(dtype)

    def read(rows: Array) -> Blocks:
        fits = rows.flags.c_contiguous and not rows.ctypes.data % kind.itemsize
        numbers = (rows if fits else rows.copy()).view(kind)
        return Blocks(8 * kind.itemsize, numbers.shape[1], numbers, np.ones((len(numbers), 1), np.float32))

    return read


def _bfloat16(rows: Array) -> Blocks:
    return _floats(DType.BFLOAT16.numpy)(rows)  # loads ml_dtypes, 2.5 MB that other models do without


FORMATS: Mapping[int, Format] = {
    0: Format("F32", 1, 4, _floats("<f4")),
    1: Format("F16", 1, 2, _floats("<f2")),
    2: Format("Q4_0", 32, 18, _q4_0),
    3: Format("Q4_1", 32, 20, _q4_1),
    6: Format("Q5_0", 32, 22, _q5_0),
    7: Format("Q5_1", 32, 24, _q5_1),
    8: Format("Q8_0", 32, 34, _q8_0),
    10: Format("Q2_K", 256, 84, _q2_k),
    11: Format("Q3_K", 256, 110, _q3_k),
    12: Format("Q4_K", 256, 144, _q4_k),
    13: Format("Q5_K", 256, 176, _q5_k),
    14: Format("Q6_K", 256, 210, _q6_k),
    16: Format("IQ2_XXS", 256, 66, iq2_xxs),
    17: Format("IQ2_XS", 256, 74, iq2_xs),
    18: Format("IQ3_XXS", 256, 98, iq3_xxs),
    20: Format("IQ4_NL", 32, 18, _iq4_nl),
    21: Format("IQ3_S", 256, 110, iq3_s),
    22: Format("IQ2_S", 256, 82, iq2_s),
    23: Format("IQ4_XS", 256, 136, _iq4_xs),
    30: Format("BF16", 1, 2, _bfloat16),
    39: Format("MXFP4", 32, 17, _mxfp4),
}
"""The formats by their numbers in files."""
