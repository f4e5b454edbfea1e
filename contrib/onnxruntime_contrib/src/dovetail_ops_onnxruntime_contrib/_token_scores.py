"""Changes of the scores of next tokens, as searches make them before they choose."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail_ops_onnxruntime_contrib.generation import NGramRepeatBlock

__all__ = ["LOWEST", "Timestamps", "TokenScores"]

Array = NDArray[Any]

LOWEST = np.finfo(np.float32).min
"""The score of a token that must not follow. It is finite, as that of ONNX Runtime: sums of two have no NaN."""


@dataclass(frozen=True)
class Timestamps:
    """The tokens of Whisper for texts with times: those from `first` on are times, in pairs but for the first.

    `never` must not follow at all, `once` must not follow the first time. Times together that are more probable than each other
    token rule these out.
    """

    end: int
    first: int
    never: tuple[int, ...]
    once: tuple[int, ...]
    latest: int = 50
    """The number of the last time that a text may begin with."""

    def change(self, scores: Array, text: Array) -> None:
        """Rule out what may not follow `text` in its `scores`."""
        times = np.nonzero(text >= self.first)[0]
        begin = int(times[0]) + 1 if len(times) else len(text)
        scores[list(self.never)] = LOWEST
        if len(text) > begin:
            scores[list(self.once)] = LOWEST
        after_time = text[-1] >= self.first
        in_pair = len(text) <= begin or text[-2] >= self.first
        if after_time:
            scores[slice(self.first, None) if in_pair else slice(self.end)] = LOWEST
        if len(times):
            scores[self.first : text[times[-1]] + (0 if after_time and not in_pair else 1)] = LOWEST
        if len(text) == begin:
            scores[self.first + self.latest + 1 :] = LOWEST
        times_left = scores[self.first :][scores[self.first :] > LOWEST]
        if times_left.size and np.logaddexp.reduce(times_left) > scores[: self.first].max():
            scores[: self.first] = LOWEST


@dataclass(frozen=True)
class TokenScores:
    """The changes of scores [rows, vocabulary], in this order. Masks have 0 for tokens that must not follow.

    `first_mask` [batch, vocabulary] is for the first token, with rows of one text side by side. The token `end` does not follow
    before `min_length` tokens. `penalties` [rows, vocabulary] are subtracted.
    """

    repetition_penalty: float = 1.0
    no_repeat_ngram_size: int = 0
    mask: Array | None = None
    first_mask: Array | None = None
    min_length: int = 0
    end: int = -1
    temperature: float = 1.0
    penalties: Array | None = None
    timestamps: Timestamps | None = None

    def changed(self, scores: Array, texts: Array, is_first: bool) -> Array:
        """The scores, float32, that follow `texts` [rows, length]."""
        y = scores.astype(np.float32)
        if self.repetition_penalty != 1:
            self._penalize(y, texts)
        if self.no_repeat_ngram_size:
            y = np.maximum(NGramRepeatBlock(ngram_size=self.no_repeat_ngram_size).reference(texts, y), LOWEST)
        if self.mask is not None:
            y[:, self.mask == 0] = LOWEST
        if self.first_mask is not None and is_first:
            y[np.repeat(self.first_mask == 0, len(y) // max(1, len(self.first_mask)), axis=0)] = LOWEST
        if texts.shape[1] < self.min_length:
            y[:, self.end] = LOWEST
        if self.temperature != 1 and self.temperature > 0:
            with np.errstate(over="ignore"):
                y /= np.float32(self.temperature)
        if self.penalties is not None:
            y -= self.penalties
        if self.timestamps is not None:
            for row, text in zip(y, texts, strict=True):
                self.timestamps.change(row, text)
        return y

    def _penalize(self, scores: Array, texts: Array) -> None:
        """Tokens that a text has get less, once each, whatever their sign."""
        old = np.take_along_axis(scores, texts, axis=1)
        penalty = np.float32(self.repetition_penalty)
        with np.errstate(over="ignore"):
            np.put_along_axis(scores, texts, np.where(old < 0, old * penalty, old / penalty), axis=1)
