"""The iterator: what follows does not depend on how it was computed; ends; stop words; characters of several tokens."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import dovetail
from dovetail.errors import FormatError, UsageError
from dovetail_generate import Sampling, TextGenerator
from dovetail_generate.decoding import Decoding
from dovetail_generate.generator import device_for
from dovetail_generate.lookup import guess
from dovetail_generate.vocabulary import SPLITS


def _tokens(pieces: Any, index: int = 0) -> list[int]:
    return [piece.token for piece in pieces if piece.index == index]


def _prompt(size: int, seed: int = 0) -> list[int]:
    return [int(token) for token in np.random.default_rng(seed).integers(3, 262, size)]


def _greedy(model: Path, prompt: list[int], count: int) -> list[int]:
    """The tokens that follow, each computed from the whole text by a new request, without caches of earlier runs."""
    core = dovetail.Core()
    text = list(prompt)
    with core.compile_model(core.read_model(model).reshape({"attention_mask": (1, 300)}), "NUMPY") as compiled:
        for _ in range(count):
            mask = (np.arange(300) < len(text)).astype(np.int64)[None]
            logits = compiled.create_infer_request().infer({"input_ids": [text], "attention_mask": mask})["logits"]
            text.append(int(logits[0, 0].argmax()))
    return text[len(prompt) :]


@pytest.mark.parametrize("size", [1, 2, 31, 32, 33, 129, 200, 257])
def test_prompts_of_any_length_make_few_plans(model: Path, generator: Any, size: int) -> None:
    found = _tokens(generator.generate([_prompt(size)], limit=4, ends=False))
    assert found == _greedy(model, _prompt(size), 4)
    assert generator.plans <= 3


def test_texts_together_are_as_each_alone(generator: Any) -> None:
    prompts = [_prompt(5, 1), _prompt(150, 2), _prompt(40, 3)]
    alone = [_tokens(generator.generate([prompt], limit=6, ends=False)) for prompt in prompts]
    pieces = list(generator.generate(prompts, limit=6, ends=False))
    assert [_tokens(pieces, index) for index in range(3)] == alone
    assert [piece.index for piece in pieces[:6]] == [0, 1, 2, 0, 1, 2]


@pytest.mark.parametrize(("count", "right", "steps"), [(1, 1, 21), (3, 3, 11), (5, 2, 14), (3, 0, 41)])
def test_guessed_tokens_change_nothing(generator: Any, monkeypatch: Any, count: int, right: int, steps: int) -> None:
    """Guesses whose first tokens are `right`: each run adds these and one more."""
    prompts = [_prompt(5, 1), _prompt(40, 3), [7, 8]]
    want = list(generator.generate(prompts, limit=41, ends=False))
    whole = [[*prompt, *_tokens(want, index)] for index, prompt in enumerate(prompts)]

    def known(text: list[int], most: int) -> list[int]:
        following = next(one for one in whole if one[: len(text)] == text)[len(text) : len(text) + most]
        return [token if at < right else 3 + (token - 2) % 250 for at, token in enumerate(following)]

    runs: list[Any] = []
    run = Decoding.checked
    monkeypatch.setattr("dovetail_generate.generator.guess", known)
    monkeypatch.setattr(Decoding, "checked", lambda self, *given: (runs.append(given), run(self, *given))[1])
    pieces = list(generator.generate(prompts, limit=41, ends=False, lookup=count))
    for index in range(len(prompts)):
        assert [piece for piece in pieces if piece.index == index] == [piece for piece in want if piece.index == index]
    assert len(runs) == steps


@pytest.mark.parametrize(("seed", "least", "most"), [(3, 11, 11), (5, 12, 41)])
def test_a_draft_model_changes_nothing(
    generator: Any, write: Any, tmp_path: Path, monkeypatch: Any, seed: int, least: int, most: int
) -> None:
    """The same model guesses right, another one hardly ever."""
    prompts = [_prompt(5, 1), _prompt(40, 3), [7, 8]]
    want = list(generator.generate(prompts, limit=41, ends=False))
    draft = TextGenerator(write(tmp_path / "draft.gguf", seed=seed), "NUMPY", room=300)
    checks, sizes, checked, run = list[Any](), list[int](), Decoding.checked, Decoding._run
    monkeypatch.setattr(Decoding, "checked", lambda self, *given: (checks.append(given), checked(self, *given))[1])
    monkeypatch.setattr(Decoding, "_run", lambda self, *given: (sizes.append(given[2]), run(self, *given))[1])
    with_draft = TextGenerator(generator.model, "NUMPY", room=300, draft=draft)
    pieces = list(with_draft.generate(prompts, limit=41, ends=False, lookup=3))
    for index in range(len(prompts)):
        assert [piece for piece in pieces if piece.index == index] == [piece for piece in want if piece.index == index]
    assert least <= len(checks) <= most
    assert set(sizes[-20:]) == {1}  # behind its prompts the draft model runs single tokens


def test_draft_models_that_are_refused(generator: Any, write: Any, tmp_path: Path) -> None:
    other = TextGenerator(write(tmp_path / "other.gguf"), "NUMPY", room=300)
    other.tokens.tokenizer.add_tokens(["one more"])
    with pytest.raises(
        UsageError, match=r"the draft model .*other\.gguf has 263 tokens, .*small\.gguf has 262, not all the same"
    ):
        TextGenerator(generator.model, "NUMPY", draft=other)


def test_a_draft_model_without_room(generator: Any, model: Path) -> None:
    want = _tokens(generator.generate([_prompt(20)], limit=30, ends=False))
    draft = TextGenerator(model, "NUMPY", room=30)
    given = TextGenerator(model, "NUMPY", room=300, draft=draft).generate([_prompt(20)], limit=30, ends=False, lookup=3)
    assert _tokens(given) == want


def test_guesses_at_the_end_of_the_room(generator: Any) -> None:
    prompt = _prompt(5, 1) * 4
    want = _tokens(generator.generate([prompt], limit=1000, ends=False))
    pieces = list(generator.generate([prompt], limit=1000, ends=False, lookup=3))
    assert (_tokens(pieces), pieces[-1].ended) == (want, "room")
    with pytest.raises(UsageError, match=r"lookup of 3 tokens at temperature 0\.5; accepted: 0 or more, at temperature 0"):
        generator.generate([prompt], sampling=Sampling(temperature=0.5), lookup=3)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ([1, 2, 3, 9, 1, 2], [3, 9, 1]),
        ([1, 2, 3, 1, 2, 4, 1, 2], [4, 1, 2]),
        ([5, 1, 2, 3, 1, 2, 4, 5, 1, 2], [3, 1, 2]),
        ([1, 1, 1], [1]),
        ([1, 2, 3], []),
        ([1], []),
    ],
)
def test_a_guess_is_what_followed_before(text: list[int], want: list[int]) -> None:
    assert guess(text, 3) == want


def test_a_text_that_has_ended_leaves_the_others_alone(generator: Any) -> None:
    prompts = [_prompt(5, 1), _prompt(9, 2)]
    alone = _tokens(generator.generate(prompts[1:], limit=8, ends=False))
    first = [piece for piece in generator.generate(prompts[:1], limit=8, ends=False) if piece.text]
    stop = first[2].text
    assert stop not in "".join(piece.text for piece in generator.generate(prompts[1:], limit=8, ends=False))
    pieces = list(generator.generate(prompts, limit=8, ends=False, stop=[stop]))
    assert _tokens(pieces, 1) == alone
    assert [piece.ended for piece in pieces if piece.index == 0][-1] == "stop"


def test_a_conversation_goes_on_from_what_is_cached(model: Path, generator: Any, monkeypatch: Any) -> None:
    ran: list[int] = []
    run = Decoding._run
    monkeypatch.setattr(Decoding, "_run", lambda self, parts, ends, size: ran.append(size) or run(self, parts, ends, size))
    first = _prompt(100)
    answer = _tokens(generator.generate([first], limit=5, ends=False))
    ran.clear()
    later = [*first, *answer, 7, 8]
    assert _tokens(generator.generate([later], limit=3, ends=False)) == _greedy(model, later, 3)
    assert ran == [32, 1, 1]  # nothing of the first hundred tokens on their own
    changed = [*first[:50], *_prompt(10, 9)]
    assert _tokens(generator.generate([changed], limit=3, ends=False)) == _greedy(model, changed, 3)
    ran.clear()
    assert _tokens(generator.generate([changed], limit=1, ends=False)) == _greedy(model, changed, 1)
    assert ran == [1]


def test_nothing_is_cached_after_a_run_that_failed(model: Path, generator: Any, monkeypatch: Any) -> None:
    prompt = _prompt(20)
    pieces = generator.generate([prompt], limit=9, ends=False)
    given = [next(pieces).token for _ in range(3)]
    request = generator._decoding[1]._request
    infer = request.infer

    def failing(*inputs: Any, **options: Any) -> Any:
        for array in request.query_state().values():
            array[...] = 7
        raise KeyboardInterrupt

    monkeypatch.setattr(request, "infer", failing)
    with pytest.raises(KeyboardInterrupt):
        next(pieces)
    monkeypatch.setattr(request, "infer", infer)
    later = [*prompt, *given]
    assert _tokens(generator.generate([later], limit=3, ends=False)) == _greedy(model, later, 3)


def test_a_long_text_makes_no_further_plans(generator: Any) -> None:
    pieces = list(generator.generate([_prompt(10)], limit=1000, ends=False))
    assert len(pieces) == 290
    assert pieces[-1].ended == "room"
    assert generator.plans == 2


def test_sampling_repeats_with_its_seed(generator: Any) -> None:
    def text(seed: int, others: int = 0) -> list[int]:
        prompts = [_prompt(5), *(_prompt(6, i) for i in range(others))]
        return _tokens(generator.generate(prompts, limit=12, ends=False, sampling=Sampling(temperature=1.5, seed=seed)))

    assert text(1) == text(1) == text(1, others=2)
    assert text(1) != text(2)


def test_the_model_ends_a_text(generator: Any, monkeypatch: Any) -> None:
    tokens = _tokens(generator.generate([_prompt(5)], limit=6, ends=False))
    monkeypatch.setattr(generator, "tokens", generator.tokens.__class__(generator.tokens.tokenizer, frozenset({tokens[3]})))
    pieces = list(generator.generate([_prompt(5)], limit=6))
    assert _tokens(pieces) == tokens[: tokens.index(tokens[3]) + 1]
    assert (pieces[-1].ended, pieces[-1].text) == ("token", "")


class Scripted:
    """A decoding that always gives the tokens of a text."""

    device, plans = "scripted", 0

    def __init__(self, tokens: list[int], size: int) -> None:
        self.tokens, self.size, self.step = tokens, size, -1

    def logits(self, texts: Any) -> Any:
        self.step += 1
        return np.eye(self.size)[[self.tokens[self.step]] * len(texts)]

    def close(self) -> None:
        """It holds nothing."""


def _scripted(generator: Any, text: str, **options: Any) -> list[Any]:
    tokens = generator.tokens.encode(text)
    generator._decoding = 1, Scripted(tokens, 263)
    return list(generator.generate(["x"], limit=len(tokens), **options))


@pytest.mark.parametrize(
    ("text", "stop", "want"),
    [
        ("one two three", ["two"], "one "),
        ("one two three", ["three", "two th"], "one "),
        ("aaab", ["aab"], "a"),
        ("one tw", ["two"], "one tw"),
        ("one", ["x", "one"], ""),
        ("the end.", [], "the end."),
        ("héllo 🦊!", [], "héllo 🦊!"),
    ],
)
def test_stop_words_and_characters(generator: Any, text: str, stop: list[str], want: str) -> None:
    pieces = _scripted(generator, text, stop=stop)
    assert "".join(piece.text for piece in pieces) == want
    assert pieces[-1].ended == ("limit" if want == text else "stop")
    shown = [piece.text for piece in pieces if piece.text]
    assert all("\ufffd" not in part for part in shown)
    assert len(shown) > 1 or len(want) < 4


def test_messages_become_text_by_the_template(generator: Any, write: Any, tmp_path: Path) -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    text = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    assert generator.tokens.chat(messages) == text
    tokens = generator.tokens.encode(text)
    assert (tokens[0], tokens.count(1), tokens.count(2)) == (1, 3, 2)
    assert len(list(generator.chat(messages, limit=2, ends=False))) == 2
    for template, message in ((None, "no chat template"), ("{{ 1 / 0 }}", "fails: ZeroDivisionError"), ("{{", "fails")):
        other = TextGenerator(write(tmp_path / "other.gguf", template=template), "NUMPY")
        with pytest.raises(UsageError, match=message):
            other.tokens.chat(messages)
    refusing = write(tmp_path / "refusing.gguf", template="{{ raise_exception('only users') }}")
    with pytest.raises(UsageError, match="refuses the messages: only users"):
        TextGenerator(refusing, "NUMPY").chat(messages)
    unsafe = write(tmp_path / "unsafe.gguf", template="{{ messages.__class__.__mro__ }}")
    with pytest.raises(UsageError, match="fails: SecurityError"):
        TextGenerator(unsafe, "NUMPY").chat(messages)


@pytest.mark.parametrize("pre", SPLITS)
def test_tokens_are_text_again(write: Any, tmp_path: Path, pre: str) -> None:
    tokens = TextGenerator(write(tmp_path / "m.gguf", pre=pre), "NUMPY").tokens
    text = "The quick brown fox, the 12345 foxes' dens;\n\n\tit's 50% — naïve 🦊."
    assert tokens.tokenizer.decode(tokens.encode(text)) == text
    begin = [1] if tokens.begin == 1 else []
    assert bool(begin) == (pre in {"llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken"})
    assert tokens.encode(" the") == [*begin, 3 + 256 + 2]


def test_a_tokenizer_in_its_own_file(generator: Any, model: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    generator.tokens.tokenizer.save(str(path))
    (tmp_path / "tokenizer_config.json").write_text(
        '{"eos_token": {"content": "<|im_end|>"}, "chat_template": "{{ eos_token }}"}'
    )
    other = TextGenerator(model, "NUMPY", tokenizer=path)
    assert other.tokens.encode("the foxes") == generator.tokens.encode("the foxes")
    assert other.tokens.ends == {0, 2}
    assert other.tokens.chat([]) == "<|im_end|>"
    (tmp_path / "chat_template.jinja").write_text("{{ 1 }}")
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 7]}')
    other = TextGenerator(model, "NUMPY", tokenizer=path)
    assert other.tokens.ends == {0, 2, 7}
    assert other.tokens.chat([]) == "1"
    (tmp_path / "chat_template.jinja").unlink()
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": [{"name": "default", "template": "{{ 2 }}"}]}')
    assert TextGenerator(model, "NUMPY", tokenizer=path).tokens.chat([]) == "2"
    (tmp_path / "tokenizer_config.json").write_text('{"chat_template": [{"name": "default"}]}')
    with pytest.raises(FormatError, match="malformed configuration of a tokenizer"):
        TextGenerator(model, "NUMPY", tokenizer=path)
    path.write_text("{")
    with pytest.raises(FormatError, match=r"tokenizer\.json: this is not a tokenizer\.json"):
        TextGenerator(model, "NUMPY", tokenizer=path)


def test_what_is_refused(model: Path, generator: Any, write: Any, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a text has 301 tokens; accepted: 1 to 300"):
        list(generator.generate([_prompt(301)]))
    with pytest.raises(UsageError, match="a text has 0 tokens"):
        list(generator.generate([""]))
    for wrong in ({"prompts": []}, {"prompts": "text"}, {"prompts": ["a"], "limit": 0}, {"prompts": ["a"], "stop": [""]}):
        with pytest.raises(UsageError, match="accepted: a list of one or more"):
            generator.generate(**wrong)
    with pytest.raises(FormatError, match="the tokenizer is gpt2, other; accepted: llama, or gpt2 with one of default"):
        TextGenerator(write(tmp_path / "m.gguf", pre="other"), "NUMPY")
    g = dovetail.GraphBuilder()
    with pytest.raises(UsageError, match="has no tokenizer"):
        TextGenerator(g.model([g.input("x", "float32", (1,))]), "NUMPY")
    with pytest.raises(UsageError, match="has the inputs x and the outputs x"):
        Decoding(dovetail.Core(), g.model(["x"]), "NUMPY", 1, 8, {})
    assert TextGenerator(model, "NUMPY", room=10**6).room == 512


def test_the_classes_are_loaded_on_first_use() -> None:
    import subprocess
    import sys

    code = "import sys, dovetail_generate; assert 'tokenizers' not in sys.modules; assert dovetail_generate.TextGenerator.__doc__"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_no_client_of_the_network_is_imported(model: Path) -> None:
    """`tokenizers` requires huggingface-hub, for downloads that a generator never makes."""
    program = f"""
import sys
from dovetail_generate import TextGenerator
assert list(TextGenerator({str(model)!r}, "NUMPY", room=64).generate([[5, 6]], limit=2, ends=False))
clients = {{"huggingface_hub", "httpx", "httpx2", "hf_xet", "requests"}}
print("tokenizers" in sys.modules, sorted(clients & sys.modules.keys()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("True []\n", "")


def _devices(*given: tuple[str, bool]) -> Any:
    return SimpleNamespace(devices=tuple(SimpleNamespace(name=name, builds_kernels=builds) for name, builds in given))


def test_where_no_device_is_named_packed_weights_go_to_devices_that_build_kernels(model: Path, monkeypatch: Any) -> None:
    packed = dovetail.Core().read_model(model)
    g = dovetail.GraphBuilder()
    plain = g.model([g.input("x", "float32", (1,))])
    here = _devices(("ONEDNN", False), ("OPENCL.0", True), ("OPENCL.1", True), ("NUMPY", False))
    assert device_for(here, packed) == "AUTO:OPENCL.0,OPENCL.1,ONEDNN,NUMPY"
    assert device_for(here, plain) == "DEFAULT"
    assert device_for(_devices(("OPENCL.0", True), ("NUMPY", False)), packed) == "DEFAULT"
    assert device_for(_devices(("ONEDNN", False), ("NUMPY", False)), packed) == "DEFAULT"
    monkeypatch.setattr("dovetail_generate.generator.device_for", lambda core, model: "AUTO:NUMPY,ONEDNN")
    with_default, named = TextGenerator(model, room=64), TextGenerator(model, "ONEDNN", room=64)
    for made, device in ((with_default, "NUMPY"), (named, "ONEDNN")):
        assert len(_tokens(made.generate([[5, 6]], limit=2, ends=False))) == 2
        assert made.device == device
        made.close()


def test_a_penalty_for_repetitions(generator: Any) -> None:
    def tokens(penalty: float) -> list[int]:
        sampling = Sampling(repetition_penalty=penalty)
        return [one.token for one in generator.generate([_prompt(8)], limit=40, sampling=sampling, ends=False)]

    assert len(set(tokens(1e5))) > len(set(tokens(1.0)))
