"""Searches against onnxruntime: texts, their scores, and the scores of tokens."""

import runpy
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from numpy.typing import NDArray

import dovetail
from dovetail.errors import DovetailError

_SEARCHES = runpy.run_path(str(Path(__file__).with_name("_searches.py")))
VOCABULARY: int = _SEARCHES["VOCABULARY"]
encoder_decoder, language_model, search = (_SEARCHES[name] for name in ("encoder_decoder", "language_model", "search"))

Array = NDArray[Any]
Run = Callable[[bytes, Mapping[str, Array]], tuple[list[Any], list[Any]]]

BEAM = (
    "input_ids",
    "max_length",
    "min_length",
    "num_beams",
    "num_return_sequences",
    "length_penalty",
    "repetition_penalty",
    "vocab_mask",
    "prefix_vocab_mask",
    "attention_mask",
)
GREEDY = (*BEAM[:3], "repetition_penalty", "vocab_mask", "prefix_vocab_mask", "attention_mask")
SCORED = ("sequences", "sequences_scores", "scores")
TOKENS = {"eos_token_id": 2, "pad_token_id": 4}


@pytest.fixture(params=["NUMPY", "ONEDNN"])
def run(request: pytest.FixtureRequest, core: dovetail.Core) -> Run:
    """The results of onnxruntime, and those of a device."""
    if request.param not in core.available_devices:
        pytest.skip(f"no {request.param} here")

    def both(file: bytes, feeds: Mapping[str, Array]) -> tuple[list[Any], list[Any]]:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        want = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"]).run(None, dict(feeds))
        with core.compile_model(core.read_model(file, format="onnx"), request.param) as compiled:
            found = compiled(feeds)
            return want, [found[i] for i in range(len(want))]

    return both


def _given(names: Sequence[str], feeds: Mapping[str, Array]) -> list[str]:
    return [name if name in feeds else "" for name in names]


def _numbers(**given: Any) -> dict[str, Array]:
    return {name: np.array([value], np.float32 if isinstance(value, float) else np.int32) for name, value in given.items()}


def _beams(**given: Any) -> dict[str, Array]:
    """Numbers of a beam search, with those that onnxruntime requires."""
    return _numbers(**{"min_length": 0, "num_return_sequences": 1, "length_penalty": 1.0, **given})


def _ids(rng: np.random.Generator, batch: int, length: int) -> Array:
    return rng.integers(5, VOCABULARY, (batch, length)).astype(np.int32)


def _check(want: Sequence[Any], got: Sequence[Any]) -> None:
    """Equal texts, close scores; onnxruntime leaves the scores of tokens open for steps that it did not need."""
    np.testing.assert_array_equal(got[0], want[0])
    np.testing.assert_allclose(got[1], want[1], rtol=1e-4, atol=1e-4)
    steps = got[2].reshape(len(got[2]), -1).any(axis=1)
    assert steps[0]
    np.testing.assert_allclose(got[2][steps], want[2][steps], rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize("early", [0, 1])
@pytest.mark.parametrize(("beams", "best", "penalty"), [(1, 1, 1.0), (3, 2, 0.5), (4, 4, 2.0)])
@pytest.mark.parametrize("length", [6, 30])
def test_beam_search(run: Run, early: int, beams: int, best: int, penalty: float, length: int) -> None:
    """Some texts end, others reach the longest length."""
    rng = np.random.default_rng(20180906)
    feeds = {"input_ids": _ids(rng, 2, 4)}
    feeds |= _beams(max_length=length, num_beams=beams, num_return_sequences=best, length_penalty=penalty)
    file = search("BeamSearch", {"decoder": language_model(rng)}, _given(BEAM, feeds), SCORED, early_stopping=early, **TOKENS)
    _check(*run(file, feeds))


def _restrictions(rng: np.random.Generator) -> dict[str, dict[str, Array]]:
    return {
        "repetition": _numbers(repetition_penalty=1.7),
        "least length": _numbers(min_length=12),
        "vocabulary": {"vocab_mask": (np.arange(VOCABULARY) % 3 > 0).astype(np.int32)},
        "first token": {"prefix_vocab_mask": (rng.random((3, VOCABULARY)) < 0.4).astype(np.int32)},
        "attention": {"attention_mask": np.array([[0, 1, 1, 1, 1], [1] * 5, [0, 0, 0, 1, 1]], np.int32)},
    }


RESTRICTIONS = tuple(_restrictions(np.random.default_rng(0)))


@pytest.mark.parametrize("name", [*RESTRICTIONS, "padding"])
@pytest.mark.parametrize("ngram", [0, 1, 3])
def test_beam_search_with_restrictions(run: Run, name: str, ngram: int) -> None:
    rng = np.random.default_rng(20180906)
    feeds = {"input_ids": _ids(rng, 3, 5), **_beams(max_length=16, num_beams=3, num_return_sequences=2)}
    feeds |= _restrictions(rng).get(name, {})
    if name == "padding":
        feeds["input_ids"][0, :3] = TOKENS["pad_token_id"]
    graphs = {"decoder": language_model(rng)}
    file = search("BeamSearch", graphs, _given(BEAM, feeds), SCORED, no_repeat_ngram_size=ngram, **TOKENS)
    _check(*run(file, feeds))


@pytest.mark.parametrize("name", [*RESTRICTIONS, "padding", "first run"])
def test_greedy_search(run: Run, name: str) -> None:
    rng = np.random.default_rng(20180907)
    feeds = {"input_ids": _ids(rng, 3, 5), **_numbers(max_length=16)} | _restrictions(rng).get(name, {})
    if name == "padding":
        feeds["input_ids"][0, :3] = TOKENS["pad_token_id"]
    graphs = {"decoder": language_model(rng)}
    if name == "first run":
        graphs["init_decoder"] = language_model(np.random.default_rng(20180907), "first")
    attributes = {"no_repeat_ngram_size": 2, "eos_token_id": VOCABULARY - 1, "pad_token_id": TOKENS["pad_token_id"]}
    want, got = run(search("GreedySearch", graphs, _given(GREEDY, feeds), ["sequences"], **attributes), feeds)
    np.testing.assert_array_equal(got[0], want[0])


def test_texts_that_have_ended_are_filled(core: dovetail.Core) -> None:
    """onnxruntime leaves them open once all have ended."""
    rng = np.random.default_rng(20180906)
    feeds = {"input_ids": _ids(rng, 2, 3), **_numbers(max_length=9)} | {
        "vocab_mask": (np.arange(VOCABULARY) == 2).astype(np.int32)
    }
    file = search("GreedySearch", {"decoder": language_model(rng)}, _given(GREEDY, feeds), ["sequences"], **TOKENS)
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        texts = compiled(feeds)["sequences"]
    np.testing.assert_array_equal(texts, np.concatenate([feeds["input_ids"], np.full((2, 6), 4)], axis=1))


@pytest.mark.parametrize("custom", [0, 1])
@pytest.mark.parametrize("top_p", [0.2, 0.7, 0.95])
def test_sampling_draws_as_onnxruntime_from_a_seed(run: Run, custom: int, top_p: float) -> None:
    rng = np.random.default_rng(20180906)
    feeds = {"input_ids": _ids(rng, 3, 4), **_numbers(max_length=20, seed=1234)}
    names = [*_given(GREEDY, feeds), "", "seed"]
    attributes = {"custom": custom, "top_p": top_p, "temperature": 1.8, "min_tokens_to_keep": 2, "eos_token_id": 0}
    file = search("Sampling", {"decoder": language_model(rng)}, names, ["sequences"], pad_token_id=4, **attributes)
    want, got = run(file, feeds)
    np.testing.assert_array_equal(got[0], want[0])


def test_sampling_subtracts_penalties_where_the_mask_is_set(core: dovetail.Core) -> None:
    """onnxruntime's CPU subtracts all of them from the first score."""
    rng = np.random.default_rng(20180906)
    lost = (np.arange(VOCABULARY) != 7).astype(np.int32)[None]
    feeds = {"input_ids": _ids(rng, 1, 3), **_numbers(max_length=6, seed=5), "presence_mask": lost}
    names = [*_given(GREEDY, feeds), "presence_mask", "seed"]
    graphs = {"decoder": language_model(rng)}
    outputs = ["sequences", "filtered_logits"]
    file = search("Sampling", graphs, names, outputs, top_p=0.9, custom=1, presence_penalty=1e4, **TOKENS)
    with core.compile_model(core.read_model(file, format="onnx"), "NUMPY") as compiled:
        texts, logits = compiled(feeds).values()
    assert texts[0, 3:].tolist() == [7, 7, 7]
    assert logits.shape == (1, VOCABULARY)
    assert logits[0].argmax() == 7


@pytest.mark.parametrize("starts", [True, False])
@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("masked", [True, False])
def test_encoder_and_decoder(run: Run, starts: bool, beams: int, masked: bool) -> None:
    rng = np.random.default_rng(20180906)
    feeds = {"input_ids": _ids(rng, 3, 5), **_beams(max_length=14, num_beams=beams, length_penalty=0.8)}
    feeds["input_ids"][0, :2] = TOKENS["pad_token_id"]
    if masked:
        feeds["attention_mask"] = np.array([[0, 1, 1, 1, 1], [1] * 5, [1, 1, 1, 0, 0]], np.int32)
    graphs = encoder_decoder(rng, starts)
    file = search("BeamSearch", graphs, _given(BEAM, feeds), SCORED, model_type=1, decoder_start_token_id=3, **TOKENS)
    _check(*run(file, feeds))


@pytest.mark.parametrize("timed", [0, 1])
def test_whisper(run: Run, timed: int) -> None:
    rng = np.random.default_rng(20180906)
    feeds = {"input_features": rng.standard_normal((3, 5, 7)).astype(np.float32)}
    feeds |= _beams(max_length=16, num_beams=3, num_return_sequences=2, logits_processor=timed, temperature=1.3)
    feeds["decoder_input_ids"] = np.array([[6, 14], [6, 9], [6, 17]], np.int32)
    names = _given(["input_features", *BEAM[1:], "decoder_input_ids", "logits_processor", "", "", "temperature"], feeds)
    tokens = {"no_timestamps_token_id": 13, "beginning_timestamp_token_id": 14, "start_of_lm_token_id": 12}
    tokens |= {"translate_token_id": 10, "transcribe_token_id": 11, "no_speech_token_id": 7, "decoder_start_token_id": 6}
    file = search("WhisperBeamSearch", encoder_decoder(rng, speech=True, hidden=True), names, SCORED, **tokens, **TOKENS)
    _check(*run(file, feeds))


def test_the_probability_that_nobody_speaks(core: dovetail.Core) -> None:
    """That of its token among the first ones. onnxruntime's CPU leaves this output open."""
    rng = np.random.default_rng(20180906)
    feeds = {"input_features": rng.standard_normal((2, 5, 7)).astype(np.float32)}
    feeds |= _numbers(max_length=6, num_beams=1, num_return_sequences=1)
    names = _given(["input_features", *BEAM[1:]], feeds)
    outputs = [*SCORED, "", "non_speech_probs"]
    graphs = encoder_decoder(rng, speech=True)
    attributes = {"no_speech_token_id": 7, "decoder_start_token_id": 6, **TOKENS}
    with core.compile_model(
        core.read_model(search("WhisperBeamSearch", graphs, names, outputs, **attributes), format="onnx")
    ) as c:
        found = c(feeds)
    np.testing.assert_allclose(found["non_speech_probs"], np.exp(found["scores"][0, :, 0, 7]), rtol=1e-5)


@pytest.mark.parametrize(
    ("numbers", "attributes", "said"),
    [
        ({"max_length": 4}, {}, "'max_length' is 4; accepted: 5 to 4096"),
        ({"num_beams": 2, "num_return_sequences": 3}, {}, "'num_beams' is 2, 'num_return_sequences' 3"),
        ({}, {"model_type": 1}, "'encoder' left out"),
    ],
)
def test_refusals(core: dovetail.Core, numbers: Any, attributes: Any, said: str) -> None:
    rng = np.random.default_rng(0)
    feeds = {"input_ids": _ids(rng, 1, 4), **_numbers(**{"max_length": 9, "num_beams": 3, "num_return_sequences": 1, **numbers})}
    graphs = {"decoder": language_model(rng)}
    file = search("BeamSearch", graphs, _given(BEAM, feeds), SCORED, **attributes, **TOKENS)
    with pytest.raises(DovetailError, match=said):
        core.compile_model(core.read_model(file, format="onnx"), "NUMPY")(feeds)
