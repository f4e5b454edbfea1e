"""Formats whose numbers are rows of a grid: IQ2 and IQ3 of ggml.

`vendor/ggml/grids.bin` holds the grids of https://github.com/ggml-org/ggml/blob/master/src/ggml-common.h (MIT), one after the
other: for each number its place among the values that occur, in 2 or 4 bits, low ones first.
"""

import os
import sys
from functools import cache
from itertools import accumulate
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail_frontend_gguf.blocks import Blocks, joined, number_of

__all__ = ["grid", "iq2_s", "iq2_xs", "iq2_xxs", "iq3_s", "iq3_xxs"]

Array = NDArray[Any]

_VALUES_2, _BITS_2 = (8, 25, 43), 2
_GRIDS = {
    "iq2_xxs": (256, 8, _BITS_2, _VALUES_2),
    "iq2_xs": (512, 8, _BITS_2, _VALUES_2),
    "iq2_s": (1024, 8, _BITS_2, _VALUES_2),
    "iq3_xxs": (256, 4, 4, (4, 12, 20, 28, 36, 44, 52, 62)),
    "iq3_s": (512, 4, 4, (1, 3, 5, 7, 9, 11, 13, 15)),
}
"""Rows, numbers of a row, bits of a place, and values."""


@cache
def grid(name: str) -> Array:
    """The rows of a grid, int8."""
    sizes = [rows * width * bits // 8 for rows, width, bits, _ in _GRIDS.values()]
    first = [0, *accumulate(sizes)][[*_GRIDS].index(name)]
    rows, width, bits, values = _GRIDS[name]
    loader: Any = sys.modules[__name__].__loader__  # reads zip archives too
    data = loader.get_data(os.path.join(os.path.dirname(__file__), "vendor", "ggml", "grids.bin"))
    packed = np.frombuffer(data, np.uint8, rows * width * bits // 8, first)
    places = packed[:, None] >> np.arange(0, 8, bits, dtype=np.uint8) & (2**bits - 1)
    return np.asarray(np.array(values, np.int8)[places.reshape(rows, width)])


def iq2_xxs(rows: Array) -> Blocks:
    """Eight parts of 32: four places in the grid, then seven signs of each, of which the eighth follows, and a scale."""
    block = rows.reshape(len(rows), -1, 66)
    parts = block[..., 2:].reshape(*block.shape[:2], 8, 8)
    rest = _words(parts[..., 4:])
    numbers = grid("iq2_xxs")[parts[..., :4]] * _signs(_sevens(rest))
    return Blocks(8, 32, joined(numbers), _quarters(block, rest >> 28, 4))


def iq2_xs(rows: Array) -> Blocks:
    """32 places of nine bits in the grid, with seven signs each; a scale of four bits for 16 numbers."""
    block = rows.reshape(len(rows), -1, 74)
    places = np.ascontiguousarray(block[..., 2:66]).view("<u2")
    numbers = grid("iq2_xs")[places & 511] * _signs(_whole((places >> 9).astype(np.uint8)))
    return Blocks(8, 16, joined(numbers), _quarters(block, _nibbles(block[..., 66:]), 4))


def iq2_s(rows: Array) -> Blocks:
    """32 places of ten bits in the grid, two of them apart, and eight signs for each; a scale of four bits for 16 numbers."""
    block = rows.reshape(len(rows), -1, 82)
    high = (block[..., 66:74, None] >> np.array([0, 2, 4, 6], np.uint8)) & 3
    places = block[..., 2:34] | (high.reshape(*block.shape[:2], 32).astype(np.uint16) << 8)
    numbers = grid("iq2_s")[places] * _signs(block[..., 34:66])
    return Blocks(8, 16, joined(numbers), _quarters(block, _nibbles(block[..., 74:]), 4))


def iq3_xxs(rows: Array) -> Blocks:
    """64 places in a grid of rows of four; for each part of 32 four times seven signs, and a scale."""
    block = rows.reshape(len(rows), -1, 98)
    rest = _words(block[..., 66:].reshape(*block.shape[:2], 8, 4))
    found = grid("iq3_xxs")[block[..., 2:66]].reshape(*block.shape[:2], 8, 4, 8)
    return Blocks(8, 32, joined(found * _signs(_sevens(rest))), _quarters(block, rest >> 28, 2))


def iq3_s(rows: Array) -> Blocks:
    """64 places of nine bits in a grid of rows of four, one bit of them apart, a sign for each number; scales are odd."""
    block = rows.reshape(len(rows), -1, 110)
    high = np.unpackbits(block[..., 66:74], axis=-1, bitorder="little").astype(np.uint16)
    found = grid("iq3_s")[block[..., 2:66] | (high << 8)].reshape(*block.shape[:2], 32, 8)
    scales = number_of(block[..., :2])[..., None] * (1 + 2 * _nibbles(block[..., 106:]))
    return Blocks(8, 32, joined(found * _signs(block[..., 74:106])), joined(scales.astype(np.float32)))


def _words(packed: Array) -> Array:
    """The 32 bits in four bytes [..., 4]."""
    return np.asarray(np.ascontiguousarray(packed).view("<u4")[..., 0])


def _sevens(words: Array) -> Array:
    """Four bytes of signs [..., 4] from seven bits each."""
    return _whole(((words[..., None] >> np.array([0, 7, 14, 21], np.uint32)) & 127).astype(np.uint8))


def _whole(seven: Array) -> Array:
    """Bytes of signs from seven bits: an even number of the eight is set."""
    odd = np.bitwise_xor.reduce(np.unpackbits(seven[..., None], axis=-1), -1)
    return np.asarray(seven | (odd << 7))


def _signs(packed: Array) -> Array:
    """1 or -1 [..., 8] for each bit of bytes, the low ones first."""
    bits = np.unpackbits(packed[..., None], axis=-1, bitorder="little").view(np.int8)
    return np.asarray(np.int8(1) - np.int8(2) * bits)


def _nibbles(packed: Array) -> Array:
    """Bytes [..., n] as numbers [..., 2 n], each low half before the high one."""
    return np.stack((packed & 15, packed >> 4), -1).reshape(*packed.shape[:2], -1)


def _quarters(block: Array, scales: Array, share: int) -> Array:
    """Scales of parts: (0.5 + number) / share, times that of the block."""
    found = number_of(block[..., :2])[..., None] * (np.float32(0.5) + scales.astype(np.float32)) * np.float32(1 / share)
    return joined(found)
