"""Cases of MurmurHash3: results of scikit-learn's murmurhash3_32 for texts, and the algorithm in Python's integers."""

import struct
from collections.abc import Iterator

import numpy as np

from dovetail.testing import Case
from dovetail_ops_onnxruntime_contrib.hashing import MurmurHash3


def murmur_hash3(rng: np.random.Generator) -> Iterator[Case]:
    """Texts of every length of the tail, numbers of four and eight bytes, seeds, signed results, no elements."""
    texts = np.array([["", "a", "ab"], ["dog", "good", "h\u00e9llo"]], object)
    wanted = np.array([[0, 1009084850, 2613040991], [2982218203, 115441729, 3164577896]], np.uint32)
    yield Case("texts", MurmurHash3(), (texts,), (wanted,))
    yield Case("signed", MurmurHash3(positive=False), (texts,), (wanted.view(np.int32),))
    for dtype, code in (("i4", "i"), ("u4", "I"), ("i8", "q"), ("u8", "Q"), ("f4", "f"), ("f8", "d")):
        x = (rng.standard_normal(5) * 1000).astype("i8").astype(dtype)
        want = np.array([_hash(struct.pack("<" + code, value), 7) for value in x.tolist()], np.uint32)
        yield Case(f"numbers_{dtype}", MurmurHash3(seed=7), (x,), (want,))
    yield Case("empty", MurmurHash3(), (np.zeros((0, 3), np.int32),), (np.zeros((0, 3), np.uint32),))


def _hash(data: bytes, state: int) -> int:
    full = 0xFFFFFFFF

    def rotated(value: int, bits: int) -> int:
        return ((value << bits) | (value >> (32 - bits))) & full

    for start in range(0, len(data), 4):
        block = data[start : start + 4]
        word = int.from_bytes(block, "little") * 0xCC9E2D51 & full
        state ^= rotated(word, 15) * 0x1B873593 & full
        if len(block) == 4:
            state = (rotated(state, 13) * 5 + 0xE6546B64) & full
    state ^= len(data)
    state = (state ^ state >> 16) * 0x85EBCA6B & full
    state = (state ^ state >> 13) * 0xC2B2AE35 & full
    return state ^ state >> 16
