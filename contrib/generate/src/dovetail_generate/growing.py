"""Tokens to logits by models whose states grow with each run, such as decoders in OpenVINO's IR."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dovetail
from dovetail.errors import UsageError
from dovetail_generate.decoding import Compiled, require_room, shared

__all__ = ["GrowingDecoding"]

_PART = 128
"""Tokens of a prompt that are run at once: each has logits of the whole vocabulary."""

_POSITIONS = "position_ids"


class GrowingDecoding(Compiled):
    """A model compiled for `texts` texts at once, of at most `room` tokens each; it declares how its states grow.

    Shorter prompts are filled up in front, which the mask hides. Raises `UsageError` for models with other inputs.
    """

    def __init__(self, core: dovetail.Core, model: dovetail.Model, device: str, texts: int, room: int, properties: Any) -> None:
        growth = model.growth
        assert growth is not None  # the caller has asked
        known = {growth.tokens, growth.mask, growth.order, _POSITIONS}
        if not {*model.inputs} <= known or "logits" not in model.outputs:
            raise UsageError(
                f"{model.source} has the inputs {', '.join(model.inputs)} and the outputs {', '.join(model.outputs)}",
                hint=f"accepted: a decoder with {', '.join(filter(None, known))} and the output logits",
            )
        super().__init__(core, model, device, properties)
        self.room, self._growth = room, growth
        self._cached: list[list[int]] = []
        self._ended = set[int]()
        self._mask, self._texts = np.zeros((texts, 0), np.int64), texts

    def plan(self, longest: int) -> None:
        """Nothing: plans depend on the numbers of tokens of all runs, and are made with these."""

    def logits(self, texts: Sequence[Sequence[int]]) -> NDArray[Any]:
        """As `Decoding.logits`; only texts that go on where the last call ended are cached, all by as many tokens.

        Those that have ended, which are as they were, get tokens that the mask hides.
        """
        require_room(texts, self.room)
        counts = [len(text) - len(old) for text, old in zip(texts, self._cached, strict=False)] if self._cached else []
        goes_on = counts and {*counts} - {0} == {max(counts)} and all(map(_continues, self._cached, texts))
        if not goes_on or self._has_returned(counts):
            self._request.reset_state()
            self._cached, self._ended = [[] for _ in texts], set[int]()
            self._mask = np.zeros((self._texts, 0), np.int64)
            counts = [*map(len, texts)]
        else:
            self._ended = {index for index, count in enumerate(counts) if not count}
        size = max(counts)
        if not self._growth.mask and min(counts) < size:
            raise UsageError(
                f"{len(texts)} prompts of {min(counts)} to {size} tokens", hint="run them one by one: the model takes no mask"
            )
        ids, mask = np.zeros((len(texts), size), np.int64), np.zeros((len(texts), size), np.int64)
        for row, seen, text, count in zip(ids, mask, texts, counts, strict=True):
            if count:
                row[size - count :], seen[size - count :] = text[len(text) - count :], 1
        try:
            for first in range(0, size, _PART):
                found = self._run(ids[:, first : first + _PART], mask[:, first : first + _PART])
        except BaseException:
            self._cached = []  # after a run that failed the states are undefined
            raise
        self._cached = [list(text) for text in texts]
        return np.asarray(found[:, -1].astype(np.float32))

    def checked(self, texts: Sequence[Sequence[int]], guesses: Sequence[Sequence[int]], count: int) -> NDArray[Any]:
        """Raises `UsageError`: tokens that were guessed wrongly cannot be taken back out of states."""
        raise UsageError("lookup needs caches with room", hint="leave it out: the states of this model grow by each token")

    def _has_returned(self, counts: Sequence[int]) -> bool:
        """Whether a text goes on that had ended, behind which there are hidden tokens now."""
        return any(counts[index] for index in self._ended)

    def _run(self, ids: NDArray[Any], mask: NDArray[Any]) -> NDArray[Any]:
        before = self._mask.sum(1, keepdims=True)
        self._mask = np.concatenate([self._mask, mask], 1)
        growth, inputs = self._growth, {self._growth.tokens: ids}
        if growth.mask:
            inputs[growth.mask] = self._mask
        if growth.order:
            inputs[growth.order] = np.arange(len(ids), dtype=np.int32)
        if _POSITIONS in self._compiled.inputs:
            inputs[_POSITIONS] = np.maximum(before + np.cumsum(mask, 1) - 1, 0)
        found: NDArray[Any] = self._request.infer(inputs, share_outputs=True)["logits"]
        return found


def _continues(old: list[int], new: Sequence[int]) -> bool:
    return shared(old, new) == len(old)
