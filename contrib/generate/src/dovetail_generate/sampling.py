"""The choice of a token by its logits."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import UsageError

__all__ = ["Sampling"]


@dataclass(frozen=True)
class Sampling:
    """How tokens are chosen.

    `repetition_penalty` divides positive logits of tokens in the text, and multiplies negative ones. `temperature` 0 takes the
    most likely token; else logits are divided by it. Then `top_k` keeps so many of the most likely tokens (0: all), `top_p` the
    fewest of these whose probabilities make up that share, and `min_p` those as likely as this share of the most likely one.
    `seed` gives the same choices again. Order and meaning are those of transformers. Raises `UsageError` for other numbers.
    """

    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0

    def __post_init__(self) -> None:
        if not 0 <= self.temperature < 1e6 or self.top_k < 0 or not 0 < self.top_p <= 1 or self.seed < 0:
            given = f"temperature {self.temperature}, top_k {self.top_k}, top_p {self.top_p}, seed {self.seed}"
            raise UsageError(f"sampling with {given}; accepted: 0 or more, 0 or more, above 0 to 1, 0 or more")
        if not 0 <= self.min_p <= 1 or not 0 < self.repetition_penalty < 1e6:
            given = f"min_p {self.min_p}, repetition_penalty {self.repetition_penalty}"
            raise UsageError(f"sampling with {given}; accepted: 0 to 1, above 0")

    @property
    def is_greedy(self) -> bool:
        """Whether the most likely token is taken."""
        return self.temperature == 0 or self.top_k == 1

    def generators(self, texts: int) -> list[np.random.Generator]:
        """Random numbers for each text, the same whatever other texts there are."""
        return [np.random.default_rng([self.seed, index]) for index in range(texts)]

    def choose(self, logits: NDArray[Any], rng: np.random.Generator, text: Sequence[int] = ()) -> int:
        """A token by its logits [vocabulary], after `text`; of equal ones the first."""
        if self.repetition_penalty != 1 and text:
            said, logits = np.unique(text), logits.copy()
            logits[said] *= np.where(logits[said] < 0, self.repetition_penalty, 1 / self.repetition_penalty)
        if self.is_greedy:
            return int(logits.argmax())
        order = np.argsort(-logits, kind="stable")[: self.top_k or None]
        scores = logits[order].astype(np.float64) / self.temperature
        weights = np.exp(scores - scores[0])
        shares = np.cumsum(weights / weights.sum())
        kept = int(np.searchsorted(shares, self.top_p)) + 1
        if self.min_p:
            kept = min(kept, int(np.count_nonzero(weights >= self.min_p)))
        chosen = np.searchsorted(shares[:kept], rng.random() * shares[:kept][-1], side="right")
        return int(order[min(int(chosen), len(shares[:kept]) - 1)])
