"""The best texts of a beam search: those that have ended, and those that go on."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Beams", "log_softmax"]

Array = NDArray[Any]


def log_softmax(logits: Array) -> Array:
    """The logarithms of probabilities [rows, vocabulary], float32."""
    x = logits.astype(np.float32)
    x = x - x.max(axis=-1, keepdims=True)
    return np.asarray(x - np.log(np.exp(x).sum(axis=-1, keepdims=True)))


class _Ended:
    """At most `count` texts that have ended, the best first: sums of logarithms over a power of the length."""

    def __init__(self, count: int, length_penalty: float) -> None:
        self._count, self._penalty = count, np.float32(length_penalty)
        self.texts: list[tuple[np.float32, Array]] = []
        self.is_done = False

    @property
    def is_full(self) -> bool:
        return len(self.texts) == self._count

    def score(self, total: np.float32, length: int) -> np.float32:
        """The score of a text."""
        return np.float32(total / np.power(np.float32(length), self._penalty))

    def add(self, text: Array, total: np.float32) -> None:
        """Keep a text, unless enough others are better."""
        score = self.score(total, len(text))
        if self.is_full and not score > self.texts[-1][0]:
            return
        place = next((i for i, (other, _) in enumerate(self.texts) if score > other), len(self.texts))
        self.texts.insert(place, (score, text))
        del self.texts[self._count :]


class Beams:
    """`beams` texts of each of the `batch` rows of `ids`, side by side in `texts` [batch * beams, length]."""

    def __init__(self, ids: Array, beams: int, length_penalty: float, early_stopping: bool, end: int, pad: int) -> None:
        self._batch, self._beams = len(ids), beams
        self._early, self._end, self._pad = early_stopping, end, pad
        self.texts = np.repeat(ids.astype(np.int64), beams, axis=0)
        self._ended = [_Ended(beams, length_penalty) for _ in range(self._batch)]
        self.totals = np.where(np.arange(self._batch * beams) % beams, np.float32(-1e9), np.float32(0))

    @property
    def is_done(self) -> bool:
        """Whether each row has texts that nothing can replace."""
        return all(one.is_done for one in self._ended)

    def advance(self, scores: Array) -> tuple[Array, Array]:
        """Add the best token to each text: the tokens and the texts that they follow, [batch * beams] each.

        `scores` [batch * beams, vocabulary] are those of texts with the token.
        """
        vocabulary, wanted = scores.shape[1], 2 * self._beams
        rows = scores.reshape(self._batch, -1)
        places = np.stack([_best(row, wanted) for row in rows]) if self._batch else np.empty((0, wanted), np.int64)
        totals = np.take_along_axis(rows, places, axis=1)
        chosen = [self._chosen(i, totals, places[i] // vocabulary, places[i] % vocabulary) for i in range(self._batch)]
        tokens, parents, self.totals = (np.array([one[k] for row in chosen for one in row]) for k in range(3))
        self.totals = self.totals.astype(np.float32)
        self.texts = np.concatenate([self.texts[parents.astype(np.int64)], tokens.astype(np.int64)[:, None]], axis=1)
        return tokens.astype(np.int64), parents.astype(np.int64)

    def _chosen(self, row: int, totals: Array, beams: Array, tokens: Array) -> list[tuple[int, int, np.float32]]:
        """Tokens, the texts that they follow and the sums for each beam of a row, which goes on; texts that end are kept."""
        ended = self._ended[row]
        if ended.is_done:
            return [(self._pad, 0, np.float32(0))] * self._beams
        found: list[tuple[int, int, np.float32]] = []
        for place, (beam, token) in enumerate(zip(beams.tolist(), tokens.tolist(), strict=True)):
            parent, total = row * self._beams + beam, totals[row, place]
            if token != self._end:
                found.append((token, parent, total))
            elif place < self._beams:
                ended.add(self.texts[parent], total)
            if len(found) == self._beams:
                break
        if ended.is_full:
            # ONNX Runtime compares with the sums of other rows from here on.
            best = totals.reshape(-1)[row * self._beams :][: 2 * self._beams].max()
            ended.is_done = self._early or not ended.texts[-1][0] < ended.score(best, self.texts.shape[1])
        return found

    def results(self, count: int, length: int) -> tuple[Array, Array]:
        """The best `count` texts of each row, filled to `length`, and their scores."""
        texts = np.full((self._batch, count, length), self._pad, np.int32)
        scores = np.zeros((self._batch, count), np.float32)
        for row, ended in enumerate(self._ended):
            for i in range(row * self._beams, (row + 1) * self._beams) if not ended.is_done else ():
                ended.add(self.texts[i], self.totals[i])
            for place, (score, text) in enumerate(ended.texts[:count]):
                scores[row, place], texts[row, place, : len(text)] = score, text
        return texts, scores


def _best(row: Array, count: int) -> Array:
    """The places of the `count` largest elements, the largest first, equal ones in their order."""
    least = np.partition(row, len(row) - count)[len(row) - count]
    places = np.flatnonzero(row >= least)
    return places[np.argsort(-row[places], kind="stable")][:count]
