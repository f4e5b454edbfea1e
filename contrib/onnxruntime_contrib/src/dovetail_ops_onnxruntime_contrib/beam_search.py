"""BeamSearch and WhisperBeamSearch of ONNX Runtime: texts by the models in their sub-graphs."""

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dovetail.op import DType, Graph, OperatorError, RunGraph
from dovetail_ops_onnxruntime_contrib._base import SearchOperator
from dovetail_ops_onnxruntime_contrib._decoders import Decoder, EncoderDecoder, LanguageModel
from dovetail_ops_onnxruntime_contrib._hypotheses import Beams, log_softmax
from dovetail_ops_onnxruntime_contrib._token_scores import Timestamps, TokenScores

__all__ = ["BeamSearch", "WhisperBeamSearch", "number"]

Array = NDArray[Any]

FLOATS = frozenset({DType.FLOAT32, DType.FLOAT16})
INT32 = frozenset({DType.INT32})

_LONGEST = 4096
_MOST_BEAMS = 128
_SCORES = 2
"""The number of the output with the scores of all tokens, which take memory for each step."""


class BeamSearch(SearchOperator):
    """The best texts that continue `input_ids` [batch, sequence], by a search with `num_beams` texts for each row.

    `decoder` is a language model (`model_type` 0), or it follows `encoder`, of T5 (1) or Whisper (2, where `input_ids` are
    features [batch, features, frames]); see `LanguageModel` and `EncoderDecoder` for their inputs. `init_decoder` runs first.
    Gives int32 texts [batch, num_return_sequences, max_length], filled with `pad_token_id`, their scores (sums of logarithms of
    probabilities over length ** length_penalty), and the scores of all tokens [steps, batch, num_beams, vocabulary], zeros for
    steps that were not needed. Masks are 0 for tokens that must not follow, or that are padding.
    """

    inputs: ClassVar[tuple[str, ...]] = (
        "input_ids: F",
        "max_length: I",
        "min_length?: I",
        "num_beams: I",
        "num_return_sequences: I",
        "length_penalty?: T",
        "repetition_penalty?: T",
        "vocab_mask?: I",
        "prefix_vocab_mask?: I",
        "attention_mask?: I",
        "decoder_input_ids?: I",
        "logits_processor?: I",
    )
    outputs: ClassVar[tuple[str, ...]] = ("sequences: I", "sequences_scores?: T", "scores?: T")
    types = {"F": FLOATS | INT32, "T": FLOATS, "I": INT32}
    decoder: Graph
    eos_token_id: int
    pad_token_id: int
    decoder_start_token_id: int = -1
    early_stopping: bool = False
    encoder: Graph | None = None
    init_decoder: Graph | None = None
    model_type: int = 0
    no_repeat_ngram_size: int = 0
    vocab_size: int = -1

    _kinds: ClassVar[tuple[int, ...]] = (0, 1)

    def __post_init__(self) -> None:
        if self.model_type not in self._kinds or (self.model_type and self.encoder is None):
            raise OperatorError(
                f"attribute 'model_type' is {self.model_type}, 'encoder' {'left out' if self.encoder is None else 'given'}",
                hint=f"accepted: {' or '.join(map(str, self._kinds))}; other models than 0 with an encoder",
            )

    def control(self, run: RunGraph, ids: Array, max_length: Any, min_length: Any, *rest: Any) -> Any:
        """Texts, their scores, the scores of tokens."""
        beams, wanted, length_penalty, repetition_penalty, mask, first_mask, attention, start, kind = rest[:9]
        count, longest = int(number(beams, 1)), int(number(max_length, _LONGEST))
        best = int(number(wanted, 1))
        if not 1 <= best <= count <= _MOST_BEAMS:
            raise OperatorError(
                f"inputs 'num_beams' is {count}, 'num_return_sequences' {best}; accepted: 1 to {_MOST_BEAMS}, no more"
            )
        begin = self._begin(ids, start)
        if not begin.shape[1] < longest <= _LONGEST:
            raise OperatorError(f"input 'max_length' is {longest}; accepted: {begin.shape[1] + 1} to {_LONGEST}")
        changes = TokenScores(
            repetition_penalty=float(number(repetition_penalty, 1)),
            no_repeat_ngram_size=self.no_repeat_ngram_size,
            mask=mask,
            first_mask=first_mask,
            min_length=int(number(min_length, 0)),
            end=self.eos_token_id,
            temperature=self._temperature(*rest[9:]),
            timestamps=self._timestamps(int(number(kind, 0))),
        )
        found = Beams(begin, count, float(number(length_penalty, 1)), self.early_stopping, self.eos_token_id, self.pad_token_id)
        decoder = self._decoder(run, ids, attention, begin, count)
        keeps = run.wanted[_SCORES]
        first, scores = self._search(decoder, found, changes, longest, count, keeps)
        texts, totals = found.results(best, longest)
        steps = self._steps(scores, (longest - begin.shape[1], len(begin), count)) if keeps else None
        return texts, totals.astype(self._dtype()), steps, *self._others(first)

    def _search(
        self, decoder: Decoder, found: Beams, changes: TokenScores, longest: int, beams: int, keeps: bool
    ) -> tuple[Array, list[Array]]:
        """The logits that follow the prompt, and the scores of each step if it `keeps` them."""
        first = logits = decoder.start()
        logits = np.repeat(logits, beams, axis=0)
        begin, scores = found.texts.shape[1], []
        while True:
            logits = logits[:, : self.vocab_size] if self.vocab_size > 0 else logits
            changed = changes.changed(log_softmax(logits), found.texts, found.texts.shape[1] == begin)
            with np.errstate(over="ignore"):  # of two scores that are the lowest
                changed += found.totals[:, None]
            scores += [changed] * keeps
            _, parents = found.advance(changed)
            if found.is_done or found.texts.shape[1] == longest:
                return first, scores
            logits = decoder.next(found.texts, parents)

    def _steps(self, scores: list[Array], sizes: tuple[int, int, int]) -> Array:
        """The scores of all steps, zeros for those that were not needed."""
        y = np.zeros((*sizes, scores[0].shape[-1]), self._dtype())
        y[: len(scores)] = np.stack(scores).reshape(len(scores), *sizes[1:], -1)
        return y

    def _dtype(self) -> Any:
        """The type of the scores: that of the logits."""
        declared = self.decoder.types.get(self.decoder.outputs[0])
        return np.float32 if declared is None else declared.dtype.numpy

    def _begin(self, ids: Array, start: Array | None) -> Array:
        """The tokens that texts begin with."""
        if not self.model_type:
            return ids.astype(np.int64)
        return np.full((len(ids), 1), self.decoder_start_token_id, np.int64) if start is None else start.astype(np.int64)

    def _decoder(self, run: RunGraph, ids: Array, attention: Array | None, begin: Array, beams: int) -> Decoder:
        if not self.model_type:
            graphs = (self.init_decoder or self.decoder, self.decoder)
            return LanguageModel(run, graphs, ids, attention, self.pad_token_id, beams)
        if self.encoder is None:
            raise OperatorError("attribute 'encoder' is left out; accepted: a sub-graph")
        mask = _begins_with_padding(ids, self.pad_token_id) if attention is None else attention
        return EncoderDecoder(run, (self.encoder, self.decoder), (ids, mask), (mask,), begin, beams)

    def _temperature(self, *_: Any) -> float:
        return 1.0

    def _timestamps(self, kind: int) -> Timestamps | None:
        if kind:
            raise OperatorError(f"input 'logits_processor' is {kind}; accepted: 0, and more for WhisperBeamSearch")
        return None

    def _others(self, first: Array) -> tuple[Any, ...]:
        """Further outputs, from the logits that follow the prompt."""
        return ()


class WhisperBeamSearch(BeamSearch):
    """BeamSearch for Whisper; `non_speech_probs` [batch] are the probabilities of `no_speech_token_id` behind the prompt.

    With 1 or more as `logits_processor` texts have times in pairs, by the `*_token_id`.
    """

    inputs = (
        *BeamSearch.inputs,
        "cross_qk_layer_head?: I",
        "extra_decoding_ids?: I",
        "temperature?: T",
    )
    outputs = (*BeamSearch.outputs, "cross_qk?: T", "non_speech_probs?: T")
    beginning_timestamp_token_id: int | None = None
    decoder_output_cross_qk: int = 0
    model_type: int = 2
    no_speech_token_id: int = -1
    no_timestamps_token_id: int | None = None
    start_of_lm_token_id: int | None = None
    transcribe_token_id: int | None = None
    translate_token_id: int | None = None

    _kinds: ClassVar[tuple[int, ...]] = (2,)

    def check_outputs(self, count: int) -> None:
        """Raise `OperatorError` for products of queries and keys, which onnxruntime has on GPUs alone."""
        if self.decoder_output_cross_qk:
            raise OperatorError("attribute 'decoder_output_cross_qk' is set; accepted: 0")

    def _decoder(self, run: RunGraph, ids: Array, attention: Array | None, begin: Array, beams: int) -> Decoder:
        if self.encoder is None:
            raise OperatorError("attribute 'encoder' is left out; accepted: a sub-graph")
        return EncoderDecoder(run, (self.encoder, self.decoder), (ids,), (), begin, beams)

    def _temperature(self, *rest: Any) -> float:
        return float(number(rest[2], 1))

    def _timestamps(self, kind: int) -> Timestamps | None:
        if not kind:
            return None
        # Left out, they have the distances of Whisper's first vocabulary.
        end = self.eos_token_id
        first, untimed, begin = (
            end + distance if token is None else token
            for token, distance in (
                (self.beginning_timestamp_token_id, 107),
                (self.no_timestamps_token_id, 106),
                (self.start_of_lm_token_id, 105),
            )
        )
        tasks = [token for token in (self.translate_token_id, self.transcribe_token_id) if token is not None]
        return Timestamps(end, first, (untimed, begin), (self.decoder_start_token_id, *tasks))

    def _others(self, first: Array) -> tuple[Any, ...]:
        token = self.no_speech_token_id
        speechless = np.exp(log_softmax(first)[:, token]) if token >= 0 else np.zeros(len(first))
        return None, speechless.astype(self._dtype())


def number(value: Any, default: float) -> Any:
    """The element of an input; `default` where it is left out. Raises `OperatorError` unless there is one."""
    if value is None:
        return default
    if value.size != 1:
        raise OperatorError(f"an input has {value.size} elements; accepted: one")
    return value.item()


def _begins_with_padding(ids: Array, pad: int) -> Array:
    """0 for padding before the first other token: the token that ends a text may be that of padding."""
    return (np.cumsum(ids != pad, axis=1) > 0).astype(np.int32)
