"""Rows of numbers in blocks, each with a scale."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Blocks", "joined", "number_of"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Blocks:
    """Rows as `numbers` [rows, K] times scales plus offsets, one [rows, K / size] for each `size` elements of a row.

    Numbers of `bits` 4 are 0 to 15 in bytes; of 8 they are int8; of 16 and 32 floats, with one scale for a row, which is 1.
    """

    bits: int
    size: int
    numbers: Array
    scales: Array
    offsets: Array | None = None

    def floats(self) -> Array:
        """The rows in float32."""
        rows, columns = self.numbers.shape
        found = self.numbers.reshape(rows, -1, self.size).astype(np.float32) * self.scales[..., None]
        if self.offsets is not None:
            found += self.offsets[..., None]
        return np.asarray(found.reshape(rows, columns))


def joined(numbers: Array) -> Array:
    """One row for each of the first axis."""
    return numbers.reshape(len(numbers), -1)


def number_of(half: Array) -> Array:
    """The float16 in two bytes [..., 2], as float32."""
    return np.asarray(np.ascontiguousarray(half).view("<f2")[..., 0].astype(np.float32))
