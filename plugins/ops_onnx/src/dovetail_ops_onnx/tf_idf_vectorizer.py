"""TfIdfVectorizer: https://onnx.ai/onnx/operators/onnx__TfIdfVectorizer.html."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise, repeat

import numpy as np

from dovetail.locks import cached_property
from dovetail.op import DType, Operator, OperatorError, ShapeError, TensorType
from dovetail_ops_onnx._types import Array

_MODES = ("TF", "IDF", "TFIDF")


class TfIdfVectorizer(Operator):
    """How often each n-gram of the pool is in X [C], or in each row of X [B, C]; or 1 where it is; times its weight.

    Of the elements of an n-gram `max_skip_count` or fewer may be left out between each two, as many between all.
    """

    since = 9
    inputs = ("X: T",)
    outputs = ("Y: T1",)
    types = {"T": frozenset({DType.STRING, DType.INT32, DType.INT64}), "T1": frozenset({DType.FLOAT32})}

    max_gram_length: int
    max_skip_count: int
    min_gram_length: int
    mode: str
    ngram_counts: tuple[int, ...]
    ngram_indexes: tuple[int, ...]
    pool_int64s: tuple[int, ...] | None = None
    pool_strings: tuple[str, ...] | None = None
    weights: tuple[float, ...] | None = None

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise OperatorError(f"attribute 'mode' is {self.mode!r}; accepted: {', '.join(_MODES)}")
        if not 1 <= self.min_gram_length <= self.max_gram_length or self.max_skip_count < 0:
            given = f"{self.min_gram_length}, {self.max_gram_length} and {self.max_skip_count}"
            accepted = "1 or more, not less than that, 0 or more"
            raise OperatorError(
                f"attributes 'min_gram_length', 'max_gram_length', 'max_skip_count' are {given}; accepted: {accepted}"
            )
        if bool(self.pool_int64s) == bool(self.pool_strings):
            raise OperatorError("of the attributes 'pool_int64s' and 'pool_strings' both or none are given; accepted: one")
        if self.weights and len(self.weights) != len(self.ngram_indexes):
            counts = f"{len(self.weights)} weights and {len(self.ngram_indexes)} 'ngram_indexes'"
            raise OperatorError(f"there are {counts}; accepted: as many")
        self._check_pool()

    def infer(self, X: TensorType) -> TensorType:
        """[1 + the greatest of `ngram_indexes`], for each row. Raises `OperatorError` where the pool has another type."""
        if X.rank > 2:
            raise ShapeError(f"input 'X' is {X}; accepted: [C] or [B, C]")
        if (X.dtype is DType.STRING) != bool(self.pool_strings):
            raise OperatorError(f"input 'X' is {X}; accepted: strings with 'pool_strings', numbers with 'pool_int64s'")
        return TensorType(DType.FLOAT32, (*X.dims[:-1], self._size))

    def reference(self, X: Array) -> Array:
        """All n-grams of one length and distance at once."""
        rows = np.atleast_2d(X)
        found = list(self._places(self._levels[0].of(rows)))
        at = np.concatenate([row * self._size + place for row, place in found]) if found else np.zeros(0, np.int64)
        counts = np.bincount(at, minlength=rows.shape[0] * self._size).reshape(-1, self._size)
        y = (counts > 0 if self.mode == "IDF" else counts).astype(np.float32)
        if self.weights and self.mode != "TF":
            y *= self._weights
        return y.reshape(*X.shape[:-1], self._size)

    def _places(self, tokens: Array) -> Iterator[tuple[Array, Array]]:
        """Rows, and places in Y, of n-grams: by their distances, of those of one element the first only."""
        for distance in range(1, min(self.max_skip_count + 1, tokens.shape[1]) + 1):  # a greater one leaves no second element
            grams = tokens
            for level, table in enumerate(self._levels):
                if level:
                    width = tokens.shape[1] - level * distance
                    if width <= 0:
                        break
                    grams = table.of(_pairs(grams[:, :width], tokens[:, level * distance :], self._levels[0].size))
                places = table.place[grams]
                if level or distance == 1:
                    row, column = np.nonzero(places >= 0)
                    yield row, places[row, column]

    @cached_property
    def _size(self) -> int:
        return max(self.ngram_indexes) + 1

    @cached_property
    def _weights(self) -> Array:
        """By places in Y. The attribute has them by n-grams, as ONNX says; onnx.reference reads it by places in Y, too."""
        found = np.zeros(self._size, np.float32)
        found[[*self.ngram_indexes]] = self.weights
        return found

    def _grams(self) -> Iterator[tuple[tuple[int | str, ...], int]]:
        """The n-grams of the lengths that count, and their places in Y."""
        pool: tuple[int | str, ...] = self.pool_strings or self.pool_int64s or ()
        number = 0
        for length, (start, end) in enumerate(zip(self.ngram_counts, [*self.ngram_counts[1:], len(pool)], strict=True), start=1):
            for at in range(start, end, length):
                if self.min_gram_length <= length <= self.max_gram_length:
                    yield pool[at : at + length], self.ngram_indexes[number]
                number += 1

    @cached_property
    def _levels(self) -> "list[_Level]":
        """The beginnings of n-grams by their lengths: the n-th level has those of n elements."""
        places = dict(self._grams())
        tokens = {token: number for number, token in enumerate(dict.fromkeys(token for gram in places for token in gram))}
        levels = [_Level.of_tokens(tokens, places)]
        known: dict[tuple[int | str, ...], int] = {(token,): number for token, number in tokens.items()}
        for length in range(2, max(map(len, places), default=1) + 1):
            begins = {gram[:length] for gram in places if len(gram) >= length}
            keys = {known[begin[:-1]] * len(tokens) + tokens[begin[-1]]: begin for begin in begins}
            ordered = sorted(keys)
            known = {keys[key]: number for number, key in enumerate(ordered)}
            levels.append(_Level(np.array(ordered, np.int64), _at_end([places.get(keys[key], -1) for key in ordered])))
        return levels

    def _check_pool(self) -> None:
        pool = len(self.pool_int64s or self.pool_strings or ())
        ends = [*self.ngram_counts, pool]
        parts = [end - start for start, end in pairwise(ends)]
        if ends[0] < 0 or any(part < 0 or part % (n + 1) for n, part in enumerate(parts)):
            raise OperatorError(
                f"attribute 'ngram_counts' is {self.ngram_counts}; accepted: where n-grams of each length begin in {pool}"
            )
        count = sum(part // (n + 1) for n, part in enumerate(parts))
        if count != len(self.ngram_indexes) or min(self.ngram_indexes, default=-1) < 0:
            raise OperatorError(f"attribute 'ngram_indexes' has {len(self.ngram_indexes)} elements; accepted: {count}, 0 or more")


@dataclass(frozen=True)
class _Level:
    """Keys in ascending order, and for each its place in Y, or -1; behind them -1 for what is not a key."""

    keys: Array
    place: Array
    numbers: "dict[int | str, int] | None" = None

    @staticmethod
    def of_tokens(tokens: "dict[int | str, int]", places: "dict[tuple[int | str, ...], int]") -> "_Level":
        return _Level(np.array([]), _at_end([places.get((token,), -1) for token in tokens]), tokens)

    @property
    def size(self) -> int:
        return self.place.size - 1

    def of(self, x: Array) -> Array:
        """The number of each element among the keys, or -1."""
        if self.numbers is not None:
            flat = x.reshape(-1).tolist()
            return np.fromiter(map(self.numbers.get, flat, repeat(-1)), np.int64, x.size).reshape(x.shape)
        at = np.minimum(np.searchsorted(self.keys, x), self.keys.size - 1)
        return np.where(self.keys[at] == x, at, -1)


def _pairs(grams: Array, tokens: Array, count: int) -> Array:
    """A number for each beginning and the element behind it; -1 where one of them is not known."""
    return np.where((grams < 0) | (tokens < 0), -1, grams * count + tokens)


def _at_end(places: list[int]) -> Array:
    return np.array([*places, -1], np.int64)
