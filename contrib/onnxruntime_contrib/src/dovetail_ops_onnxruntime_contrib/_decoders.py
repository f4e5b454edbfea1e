"""The sub-graphs of searches as decoders: a prompt, then one token after another, with caches of keys and values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.op import Graph, OperatorError, RunGraph

__all__ = ["Decoder", "EncoderDecoder", "LanguageModel"]

Array = NDArray[Any]

_ROOM = 64
"""Places by which masked caches grow: sub-graphs are planned for each length of their caches."""


class Decoder:
    """A text for each row of logits."""

    def start(self) -> Array:
        """The logits [batch, vocabulary] that follow the prompt, one row for all `beams` of a text."""
        raise NotImplementedError

    def next(self, texts: Array, parents: Array) -> Array:
        """The logits [batch * beams, vocabulary] that follow `texts`, whose last tokens are new; they continue rows `parents`."""
        raise NotImplementedError


class LanguageModel(Decoder):
    """A decoder as of GPT-2: input_ids, position_ids, attention_mask and past_i [2, rows, heads, length, size], all lengths open.

    Gives logits and present_i. `graphs` are that for the first run and that for others. `pad` has no position; it counts as a key
    unless `mask` [batch, length] is 0 there, which by default it is.
    """

    def __init__(self, run: RunGraph, graphs: tuple[Graph, Graph], ids: Array, mask: Array | None, pad: int, beams: int) -> None:
        prompt, step = graphs
        layers = len(step.outputs) - 1
        if len(step.inputs) != 3 + layers or layers < 1:
            raise OperatorError(
                f"the decoder takes {len(step.inputs)} inputs and gives {len(step.outputs)} outputs",
                hint="accepted: input_ids, position_ids, attention_mask, then a cache for each output but the first; caches "
                "that share a buffer, which onnxruntime has on GPUs, are not",
            )
        self._run, self._prompt, self._step = run, prompt, step
        self._ids, self._has_place, self._beams = ids, ids != pad, beams
        self._mask = (self._has_place if mask is None else mask).astype(np.int32)
        self._positions = np.repeat(self._has_place.sum(axis=1, dtype=np.int32), beams)
        self._pasts: list[Array] = []
        # Zeros before the caches need a mask that counts.
        self._room = _ROOM if any(step.inputs[2] in node.reads for node in step.nodes) else 1
        self._free = 0

    def start(self) -> Array:
        """One run for the prompts; what it gives is repeated for the beams."""
        positions = np.where(self._has_place, np.cumsum(self._has_place, axis=1) - 1, 0).astype(np.int32)
        empty = self._empty(len(self._ids))
        logits, *presents = self._run(self._prompt, [self._ids.astype(np.int32), positions, self._mask, *empty])
        self._pasts = [np.repeat(one, self._beams, axis=1) for one in presents]
        self._mask = np.repeat(self._mask, self._beams, axis=0)
        return np.asarray(logits[:, -1])

    def next(self, texts: Array, parents: Array) -> Array:
        """One run for the new tokens."""
        if self._beams > 1 and (rows := parents.tolist()) != [*range(len(rows))]:
            self._pasts = [_continued(one, rows, int(self._free > 0)) for one in self._pasts]
        elif self._free:
            self._pasts = [one[:, :, :, 1:] for one in self._pasts]
        if not self._free:
            self._free = self._room - 1
            places = ((0, 0), (0, 0), (0, 0), (self._free, 0), (0, 0))
            self._pasts = [np.pad(one, places) for one in self._pasts]
            self._mask = np.pad(self._mask, ((0, 0), (self._free, 0)))
        else:
            self._free -= 1
            self._mask = self._mask[:, 1:]
        self._mask = np.concatenate([self._mask, np.ones((len(texts), 1), np.int32)], axis=1)
        ids = texts[:, -1:].astype(np.int32)
        logits, *self._pasts = self._run(self._step, [ids, self._positions[:, None], self._mask, *self._pasts])
        self._positions = self._positions + np.int32(1)
        return np.asarray(logits[:, -1])

    def _empty(self, rows: int) -> list[Array]:
        """Caches without tokens."""
        found = []
        for name in self._prompt.inputs[3:]:
            declared = self._prompt.types.get(name)
            shape = () if declared is None else declared.shape or ()
            if declared is None or len(shape) != 5 or not isinstance(shape[2], int) or not isinstance(shape[4], int):
                raise OperatorError(f"input {name!r} of the decoder is {declared}; accepted: [2, batch, heads, length, size]")
            found.append(np.zeros((2, rows, shape[2], 0, shape[4]), declared.dtype.numpy))
        return found


def _continued(cache: Array, rows: Sequence[int], first: int) -> Array:
    """The rows of a cache from place `first` on, one after the other: indexing would copy them twice."""
    pairs, _, heads, length, size = cache.shape
    found = np.empty((pairs, len(rows), heads, length - first, size), cache.dtype)
    for row, parent in enumerate(rows):
        found[:, row] = cache[:, parent, :, first:]
    return found


class EncoderDecoder(Decoder):
    """An encoder and a decoder as of T5 and Whisper.

    The decoder takes input_ids, `given` inputs of the encoder, encoder_hidden_states if it has that input, caches of its own
    tokens, then those of the encoder's. It gives logits and the first of these caches, longer. The encoder gives logits,
    encoder_hidden_states and all caches; or the last of the caches alone, and the decoder starts with none of its own.
    """

    def __init__(
        self, run: RunGraph, graphs: tuple[Graph, Graph], inputs: Sequence[Array], given: Sequence[Array], ids: Array, beams: int
    ) -> None:
        self._run, (self._encoder, self._decoder) = run, graphs
        self._inputs, self._ids, self._beams = inputs, ids.astype(np.int32), beams
        self._given = list(given)
        self._own = len(self._decoder.outputs) - 1
        others = len(self._decoder.inputs) - 1 - len(given) - 2 * self._own
        if others not in (0, 1) or self._own < 1:
            raise OperatorError(
                f"the decoder takes {len(self._decoder.inputs)} inputs and gives {len(self._decoder.outputs)} outputs",
                hint="accepted: input_ids, the mask of the encoder, its results, then two caches for each output but the first; "
                "caches that share a buffer, which onnxruntime has on GPUs, are not",
            )
        self._hidden = others
        declared = self._decoder.types.get(self._decoder.inputs[0])
        shape = None if declared is None else declared.shape
        self._one_token = shape is not None and shape[1] == 1
        self._caches: list[Array] = []

    def start(self) -> Array:
        """The encoder, and the decoder where the encoder gives no logits."""
        starts = [self._ids] if len(self._encoder.inputs) > len(self._inputs) else []
        found = self._run(self._encoder, [*self._inputs, *starts])
        if len(found) == self._own:
            return self._start_decoder(found)
        if len(found) != 2 + 2 * self._own:
            raise OperatorError(f"the encoder gives {len(found)} outputs; accepted: {self._own} or {2 + 2 * self._own}")
        logits, hidden, *caches = found
        self._fixed = [*self._given, *[hidden] * self._hidden]
        self._caches = caches
        self._spread(self._beams)
        return np.asarray(logits[:, -1])

    def next(self, texts: Array, parents: Array) -> Array:
        """One run of the decoder for the new tokens, or for all of them where it takes so many."""
        if self._beams > 1 and (parents != np.arange(len(parents))).any():
            self._caches[: self._own] = [one[parents] for one in self._caches[: self._own]]
        ids = (texts[:, -1:] if self._one_token else texts).astype(np.int32)
        return self._step(ids)

    def _step(self, ids: Array) -> Array:
        logits, *own = self._run(self._decoder, [ids, *self._fixed, *self._caches])
        self._caches[: self._own] = own
        return np.asarray(logits[:, -1])

    def _start_decoder(self, caches: list[Array]) -> Array:
        if self._hidden:
            raise OperatorError("the decoder takes encoder_hidden_states, which the encoder lacks; accepted: caches alone")
        self._fixed = [*self._given]
        rows, heads, _, size = caches[0].shape
        self._caches = [*(np.zeros((rows, heads, 0, size), caches[0].dtype) for _ in range(self._own)), *caches]
        logits = self._step(self._ids)
        self._spread(self._beams)
        return logits

    def _spread(self, beams: int) -> None:
        """Repeat what the decoder takes for each beam."""
        self._fixed = [np.repeat(one, beams, axis=0) for one in self._fixed]
        self._caches = [np.repeat(one, beams, axis=0) for one in self._caches]
