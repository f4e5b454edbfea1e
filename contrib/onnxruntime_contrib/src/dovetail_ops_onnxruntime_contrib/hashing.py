"""Hashes of elements, as scikit-learn's converters write them for FeatureHasher."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, TensorType
from dovetail_ops_onnxruntime_contrib._base import MicrosoftOperator

__all__ = ["MurmurHash3"]

Array = NDArray[Any]
Words = NDArray[np.uint32]

_INPUTS = (DType.INT32, DType.UINT32, DType.INT64, DType.UINT64, DType.FLOAT32, DType.FLOAT64, DType.STRING)


class MurmurHash3(MicrosoftOperator):
    """MurmurHash3 (Appleby, x86, 32 bits) of each element: of the bytes of a number, or of a string in UTF-8.

    The result is uint32, or its bits as int32 with `positive` 0.
    """

    inputs = ("X: T",)
    outputs = ("Y: U",)
    types = {"T": frozenset(_INPUTS), "U": frozenset({DType.UINT32, DType.INT32})}
    positive: bool = True
    seed: int = 0

    def infer(self, X: TensorType) -> TensorType:
        """The shape of X."""
        return TensorType(DType.UINT32 if self.positive else DType.INT32, X.dims)

    def reference(self, X: Array) -> Array:
        """All elements at once, four bytes of each after the other."""
        words, sizes = _text_words(X) if X.dtype.kind in "OUST" else _number_words(X)
        state = _hashed(words, sizes, np.uint32(self.seed & 0xFFFFFFFF))
        return state.view(np.uint32 if self.positive else np.int32).reshape(X.shape)

    def flops(self, inputs: Any, outputs: Any) -> int:
        """About ten for each word."""
        return 20 * int(outputs[0].size)


def _number_words(x: Array) -> tuple[Words, Words]:
    """The four-byte words of each number in a row, and its bytes."""
    plain = np.ascontiguousarray(x).reshape(-1)
    return plain.view("<u4").reshape(len(plain), x.dtype.itemsize // 4), np.full(len(plain), x.dtype.itemsize, np.uint32)


def _text_words(x: Array) -> tuple[Words, Words]:
    """The words of each text in a row, filled up with zeros, and its bytes."""
    texts = [str(text).encode() for text in x.flat]
    sizes = np.array([len(text) for text in texts], np.uint32)
    width = -(-int(sizes.max(initial=0)) // 4) * 4
    joined = b"".join(text.ljust(width, b"\0") for text in texts)
    return np.frombuffer(joined, "<u4").reshape(len(texts), width // 4), sizes


def _hashed(words: Words, sizes: Words, seed: np.uint32) -> Words:
    state = np.full(len(sizes), seed, np.uint32)
    whole = sizes // np.uint32(4)
    for i in range(words.shape[1]):
        word = _rotated(words[:, i] * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        mixed = state ^ word
        # The bytes after the last whole word, with zeros, change the state without the second step; zeros alone do not.
        state = np.where(
            i < whole, _rotated(mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64), np.where(i == whole, mixed, state)
        )
    state ^= sizes
    for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):
        state = (state ^ (state >> np.uint32(shift))) * np.uint32(factor)
    return state ^ (state >> np.uint32(16))


def _rotated(words: Words, bits: int) -> Words:
    return (words << np.uint32(bits)) | (words >> np.uint32(32 - bits))
