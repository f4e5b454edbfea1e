"""Text to tokens and back, by the package `tokenizers`; chat templates by jinja2."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers

from dovetail.errors import FormatError, UsageError

__all__ = ["Tokens", "of_file", "of_metadata"]

_CONTROL, _USER_DEFINED = 3, 4
"""Kinds of tokens in .gguf that are found in text as a whole."""

_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|endoftext|>", "</s>")

_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_SPLITS = {
    "qwen2": rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORDS}|\p{{N}}|{_REST}",
    "llama-bpe": rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)|{_WORDS}|\p{{N}}{{1,3}}|{_REST}",
}
"""How text is split into words, by the name in .gguf, where it is not as in GPT-2."""

_LIKE_GPT_2 = ("default", "gpt-2", "smollm")


@dataclass(frozen=True)
class Tokens:
    """A tokenizer with what a model needs besides: tokens that end a text, one that begins it, the template of conversations."""

    tokenizer: Tokenizer
    ends: frozenset[int]
    begin: int | None = None
    template: str | None = None
    words: Mapping[str, str] = field(default_factory=dict)

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; those with a meaning of their own, such as `<|im_start|>`, are found in it."""
        found: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        begins = self.begin is not None and found[:1] != [self.begin]
        return [self.begin, *found] if begins and self.begin is not None else found

    def stream(self) -> Any:
        """A function that takes token after token of a text and gives the characters that are complete with it, or None."""
        decoder = decoders.DecodeStream(skip_special_tokens=True)
        return lambda token: decoder.step(self.tokenizer, token)

    @cached_property
    def _compiled(self) -> Any:
        environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
        environment.globals["raise_exception"] = _refuse
        return environment.from_string(self.template or "")

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text of a conversation that an answer continues. Raises `UsageError` where the model has no template for it."""
        if self.template is None:
            raise UsageError("the model has no chat template", hint="give it plain text, on the command line with --raw")
        try:
            return str(self._compiled.render(messages=messages, add_generation_prompt=True, **self.words))
        except (TemplateError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise UsageError(f"the model's chat template fails: {type(error).__name__}: {error}") from error


def _refuse(message: str) -> None:
    raise UsageError(f"the model's chat template refuses the messages: {message}")


def of_metadata(metadata: Mapping[str, str], source: str) -> Tokens:
    """The tokenizer in the metadata of a .gguf file. Raises `FormatError` for one that is malformed or of another kind."""
    kind, split = (metadata.get(f"tokenizer.ggml.{key}", "") for key in ("model", "pre"))
    if kind != "gpt2" or (split not in _SPLITS and split not in _LIKE_GPT_2):
        raise FormatError(
            f"{source}: the tokenizer is {kind or 'missing'}, {split or 'without name'}; accepted: gpt2 with one of "
            f"{', '.join((*_LIKE_GPT_2, *_SPLITS))}",
            hint="give the tokenizer.json of the model, on the command line by --tokenizer",
        )
    try:
        return _of_lists(metadata, split)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        raise FormatError(f"{source}: the tokenizer in the file is malformed: {type(error).__name__}: {error}") from error


def _of_lists(metadata: Mapping[str, str], split: str) -> Tokens:
    words, merges, kinds = (json.loads(metadata[f"tokenizer.ggml.{key}"]) for key in ("tokens", "merges", "token_type"))
    vocabulary = {word: index for index, word in enumerate(words)}
    model = models.BPE(vocab=vocabulary, merges=[tuple(merge.split(" ", 1)) for merge in merges])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = _splitter(split)
    tokenizer.decoder = decoders.ByteLevel()
    for special, kind in ((True, _CONTROL), (False, _USER_DEFINED)):
        found = [word for word, one in zip(words, kinds, strict=True) if one == kind]
        tokenizer.add_tokens([AddedToken(word, special=special, normalized=False) for word in found])
    numbers = {key: int(metadata[name]) for key in ("bos", "eos") if (name := f"tokenizer.ggml.{key}_token_id") in metadata}
    named = {f"{key}_token": words[number] for key, number in numbers.items()}
    ends = {vocabulary[word] for word in _END_OF_TURN if word in vocabulary and kinds[vocabulary[word]] == _CONTROL}
    ends |= {numbers["eos"]} if "eos" in numbers else set()
    begins = metadata.get("tokenizer.ggml.add_bos_token") == "true"
    template = metadata.get("tokenizer.chat_template")
    return Tokens(tokenizer, frozenset(ends), numbers["bos"] if begins else None, template, named)


def _splitter(name: str) -> Any:
    if name in _SPLITS:
        parts = [pre_tokenizers.Split(Regex(_SPLITS[name]), "isolated"), pre_tokenizers.ByteLevel(False, use_regex=False)]
    else:
        digits = [pre_tokenizers.Digits(individual_digits=True)] if name == "smollm" else []
        parts = [*digits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)]
    return pre_tokenizers.Sequence(parts)


def of_file(path: Path) -> Tokens:
    """The tokenizer of a tokenizer.json, with the tokenizer_config.json beside it if there is one. Raises `FormatError`."""
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing more special
        raise FormatError(f"{path}: this is not a tokenizer.json: {error}") from error
    beside = path.with_name("tokenizer_config.json")
    try:
        config = json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
        named = {key: _word(config[key]) for key in ("bos_token", "eos_token") if config.get(key)}
        template = config.get("chat_template")
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise FormatError(f"{beside}: this is not the configuration of a tokenizer: {error}") from error
    known = (tokenizer.token_to_id(word) for word in (*_END_OF_TURN, named.get("eos_token", "")))
    ends = {number for number in known if number is not None}
    begin = tokenizer.token_to_id(named["bos_token"]) if config.get("add_bos_token") and "bos_token" in named else None
    return Tokens(tokenizer, frozenset(ends), begin, template if isinstance(template, str) else None, named)


def _word(value: Any) -> str:
    return str(value["content"] if isinstance(value, dict) else value)
