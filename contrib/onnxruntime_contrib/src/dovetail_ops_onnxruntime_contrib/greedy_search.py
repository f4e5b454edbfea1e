"""GreedySearch and Sampling of ONNX Runtime: texts by the model in their sub-graph, one token after another."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import Graph, OperatorError, RunGraph
from dovetail_ops_onnxruntime_contrib._base import SearchOperator
from dovetail_ops_onnxruntime_contrib._decoders import LanguageModel
from dovetail_ops_onnxruntime_contrib._token_scores import LOWEST, TokenScores
from dovetail_ops_onnxruntime_contrib.beam_search import FLOATS, INT32, number

__all__ = ["GreedySearch", "Sampling"]

Array = NDArray[Any]

_LONGEST = 4096


class GreedySearch(SearchOperator):
    """Texts [batch, max_length] that continue `input_ids` [batch, sequence] by the token with the largest logit, each time.

    `decoder`, and `init_decoder` for the first run, are language models: see `LanguageModel` for their inputs. Texts that have
    ended are filled with `pad_token_id`; masks are 0 for tokens that must not follow, or that are padding.
    """

    inputs: ClassVar[tuple[str, ...]] = (
        "input_ids: I",
        "max_length: I",
        "min_length?: I",
        "repetition_penalty?: T",
        "vocab_mask?: I",
        "prefix_vocab_mask?: I",
        "attention_mask?: I",
    )
    outputs: ClassVar[tuple[str, ...]] = ("sequences: I",)
    types = {"T": FLOATS, "I": INT32}
    decoder: Graph
    eos_token_id: int
    pad_token_id: int
    decoder_start_token_id: int = -1
    encoder: Graph | None = None
    init_decoder: Graph | None = None
    model_type: int = 0
    no_repeat_ngram_size: int = 0
    vocab_size: int = -1

    def __post_init__(self) -> None:
        if self.model_type:
            raise OperatorError(f"attribute 'model_type' is {self.model_type}; accepted: 0, and BeamSearch for other models")

    def control(self, run: RunGraph, ids: Array, max_length: Any, *rest: Any) -> Any:
        """The texts."""
        return self._texts(run, ids, max_length, self._changes(*rest[:4]), rest[4], lambda scores: scores.argmax(axis=1))

    def _changes(self, min_length: Any, repetition_penalty: Any, mask: Any, first_mask: Any) -> TokenScores:
        return TokenScores(
            repetition_penalty=float(number(repetition_penalty, 1)),
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            mask=mask,
            first_mask=first_mask,
            min_length=int(number(min_length, 0)),
            end=self.eos_token_id,
        )

    def _texts(
        self, run: RunGraph, ids: Array, max_length: Any, changes: TokenScores, mask: Any, choose: Callable[[Array], Array]
    ) -> Array:
        longest = int(number(max_length, _LONGEST))
        if not ids.shape[1] < longest <= _LONGEST:
            raise OperatorError(f"input 'max_length' is {longest}; accepted: {ids.shape[1] + 1} to {_LONGEST}")
        graphs = (self.init_decoder or self.decoder, self.decoder)
        decoder = LanguageModel(run, graphs, ids, mask, self.pad_token_id, 1)
        texts, has_ended = ids.astype(np.int64), np.zeros(len(ids), np.bool_)
        logits, same = decoder.start(), np.arange(len(ids))
        while True:
            logits = logits[:, : self.vocab_size] if self.vocab_size > 0 else logits
            tokens = choose(changes.changed(logits, texts, texts.shape[1] == ids.shape[1]))
            has_ended |= tokens == self.eos_token_id
            texts = np.concatenate([texts, np.where(has_ended, self.pad_token_id, tokens)[:, None]], axis=1)
            if has_ended.all() or texts.shape[1] == longest:
                break
            logits = decoder.next(texts, same)
        filled = np.full((len(ids), longest), self.pad_token_id, np.int32)
        filled[:, : texts.shape[1]] = texts
        return filled


class Sampling(GreedySearch):
    """GreedySearch that draws each token, from the most probable ones that have `top_p` together.

    Others have the score `filter_value`. With `custom` the token that exceeds `top_p` is the first one left out, and
    `presence_penalty` is subtracted where `presence_mask` [batch, vocabulary] is 1. `seed` gives the same texts as in ONNX
    Runtime; without it each run draws others. `filtered_logits` [batch, vocabulary] are those that the last token was drawn by.
    """

    inputs = (*GreedySearch.inputs, "presence_mask?: I", "seed?: I")
    outputs = ("sequences: I", "filtered_logits?: T")
    custom: bool = False
    filter_value: float = -1e20
    min_tokens_to_keep: int = 0
    presence_penalty: float = 0.0
    temperature: float = 1.0
    top_p: float = 0.0

    def control(self, run: RunGraph, ids: Array, max_length: Any, *rest: Any) -> Any:
        """The texts, and what the last token was drawn by."""
        presence, seed = rest[5:7]
        draw = _Generator(int(number(seed, float(np.random.default_rng().integers(2**31)))))
        changes = self._changes(*rest[:4])
        penalties = None if presence is None else presence * np.float32(self.presence_penalty)
        changes = replace(changes, temperature=self.temperature, penalties=penalties)
        filtered: list[Array] = [np.zeros((len(ids), 0), np.float32)]

        def choose(scores: Array) -> Array:
            filtered[0] = self._filtered(scores)
            return np.array([draw.one(row) for row in filtered[0]], np.int64)

        return self._texts(run, ids, max_length, changes, rest[4], choose), filtered[0]

    def _filtered(self, scores: Array) -> Array:
        """Scores with `filter_value` for tokens that are not drawn."""
        order = np.argsort(-scores if self.custom else scores, axis=1, kind="stable")
        ordered = np.take_along_axis(scores, order, axis=1)
        odds = np.exp(ordered - ordered.max(axis=1, keepdims=True))
        sums = np.cumsum(odds / odds.sum(axis=1, keepdims=True), axis=1, dtype=np.float32)
        if self.custom:
            lost = np.zeros(scores.shape, np.bool_)
            lost[:, 1:] = sums[:, :-1] > self.top_p
        else:
            lost = sums <= 1 - self.top_p
            lost[:, scores.shape[1] - self.min_tokens_to_keep :] = False
        y = scores.copy()
        np.put_along_axis(y, order, np.where(lost, np.float32(self.filter_value), ordered), axis=1)
        return y


class _Generator:
    """Draws as C++'s `std::default_random_engine` of GCC does: x -> 16807 x modulo 2^31 - 1."""

    def __init__(self, seed: int) -> None:
        self._state = seed % 2**32 % _MODULUS or 1

    def one(self, scores: Array) -> int:
        """The number of an element, drawn with the exponentials of the scores as odds."""
        x = scores.astype(np.float64)
        is_finite = np.isfinite(scores)
        sums = np.cumsum(np.where(is_finite, np.exp(x - x[is_finite].max(initial=LOWEST)), 0.0))
        return int(np.searchsorted(sums, self._uniform() * sums[-1], side="right"))

    def _uniform(self) -> float:
        """A number from 0 to 1, of two steps."""
        low, high = self._next() - 1, self._next() - 1
        steps = float(_MODULUS - 1)
        return min((low + high * steps) / (steps * steps), math.nextafter(1.0, 0.0))

    def _next(self) -> int:
        self._state = self._state * 16807 % _MODULUS
        return self._state


_MODULUS = 2**31 - 1
