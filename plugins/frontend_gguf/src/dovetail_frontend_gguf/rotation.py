"""Frequencies of rotary embeddings, as the metadata of a file scale them."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Rotation"]

Array = NDArray[Any]


@dataclass(frozen=True)
class Rotation:
    """Rotation of `size` elements of a head: the pair i by `base ** (-2 i / size) / factor` for each position.

    `factors` [size / 2] are other divisors for each pair. With `original`, the length of the texts of the training, frequencies
    between those that turn `fast` and `slow` times in it are mixed with those before the division (YaRN, arXiv:2309.00071).
    Cosines and sines are multiplied by `magnitude`, with YaRN also by `1 + ln(factor) / 10`.
    """

    size: int
    base: float = 10000.0
    factor: float = 1.0
    original: int = 0
    fast: float = 32.0
    slow: float = 1.0
    magnitude: float = 1.0

    def frequencies(self, factors: Array | None = None) -> Array:
        """Radians for each position [size / 2], in float64."""
        found = self.base ** (-np.arange(0, self.size, 2) / self.size)
        if factors is not None:
            found = found / factors
        if not self.original:
            return np.asarray(found / self.factor)
        first, last = max(0, math.floor(self._pair(self.fast))), min(self.size - 1, math.ceil(self._pair(self.slow)))
        divided = np.clip((np.arange(self.size // 2) - first) / max(0.001, last - first), 0, 1)
        return np.asarray(found * (1 - divided) + found / self.factor * divided)

    @property
    def amplitude(self) -> float:
        """The factor of cosines and sines."""
        return self.magnitude * (1 + 0.1 * math.log(self.factor) if self.original else 1.0)

    def _pair(self, turns: float) -> float:
        """The pair, as a real number, that turns so many times in the original length."""
        return self.size * math.log(self.original / (turns * 2 * math.pi)) / (2 * math.log(self.base))
