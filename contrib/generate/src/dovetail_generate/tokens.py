"""Text to tokens and back, by the package `tokenizers`; chat templates by jinja2."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import Tokenizer, decoders

from dovetail.errors import FormatError, UsageError, raised_by_handler
from dovetail.frontend import printable
from dovetail.locks import cached_property
from dovetail_generate.template import compiled
from dovetail_generate.vocabulary import CONTROL, SPLITS, Vocabulary

__all__ = ["Tokens", "of_file", "of_metadata"]

_END_OF_TURN = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<end_of_utterance>", "<|endoftext|>", "</s>")
_END_OF_PART, _LAST_ENDS = "<|end|>", {"<|return|>", "<|call|>"}
"""It ends an answer (Phi), or a part of one where there are tokens for its end (gpt-oss)."""


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
        return compiled(self.template or "")

    def chat(self, messages: Sequence[Mapping[str, str]]) -> str:
        """The text of a conversation that an answer continues. Raises `UsageError` where the model has no template for it."""
        if self.template is None:
            raise UsageError("the model has no chat template", hint="give it plain text, on the command line with --raw")
        try:
            given = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": True}
            return str(self._compiled.render({**self.words, **given}))
        except (TemplateError, TypeError, ValueError, ArithmeticError, RecursionError) as error:
            raise UsageError(f"the model's chat template fails: {type(error).__name__}: {error}") from error


def of_metadata(metadata: Mapping[str, str], source: str) -> Tokens:
    """The tokenizer in the metadata of a .gguf file. Raises `FormatError` for one that is malformed or of another kind."""
    kind, split = (metadata.get(f"tokenizer.ggml.{key}", "") for key in ("model", "pre"))
    vocabulary = Vocabulary(metadata, source)
    if kind == "llama":
        return _described(vocabulary, vocabulary.of_pieces(), begins=True)
    if kind == "gpt2" and split in SPLITS:
        return _described(vocabulary, vocabulary.of_bytes(split), begins=vocabulary.begins(split))
    raise FormatError(
        f"{source}: the tokenizer is {printable(kind) or 'missing'}, {printable(split) or 'without name'}; "
        f"accepted: llama, or gpt2 with one of {', '.join(SPLITS)}",
        hint="give the tokenizer.json of the model, on the command line by --tokenizer",
    )


def _described(vocabulary: Vocabulary, tokenizer: Tokenizer, begins: bool) -> Tokens:
    """The tokenizer with what the metadata say besides; `begins`: texts begin with a token where nothing else is said."""
    words, numbers = vocabulary.words, vocabulary.numbers
    found = _ending({word for word, kind in zip(words, vocabulary.kinds, strict=False) if kind == CONTROL})
    ends = {index for index, kind in enumerate(vocabulary.kinds) if kind == CONTROL and words[index] in found}
    ends |= {numbers["eos"]} if "eos" in numbers else set()
    first = numbers.get("bos") if vocabulary.flag("add_bos_token", begins) else None
    named = {f"{key}_token": words[number] for key, number in numbers.items()}
    return Tokens(tokenizer, frozenset(ends), first, vocabulary.metadata.get("tokenizer.chat_template"), named)


def _ending(words: Collection[str]) -> set[str]:
    """Those of a vocabulary's words that end an answer."""
    last = _LAST_ENDS.intersection(words)
    return {*(word for word in _END_OF_TURN if word in words), *(last or {_END_OF_PART}.intersection(words))}


def of_file(path: Path) -> Tokens:
    """The tokenizer of a tokenizer.json, with tokenizer_config.json, chat_template.jinja and generation_config.json beside it.

    Raises `FormatError`.
    """
    try:
        tokenizer = Tokenizer.from_file(str(path))
    except Exception as error:  # the package raises nothing more special
        if raised_by_handler(error):
            raise
        raise FormatError(f"{path}: this is not a tokenizer.json: {error}") from error
    config = _beside(path, "tokenizer_config.json")
    try:
        named = {key: _word(config[key]) for key in ("bos_token", "eos_token") if config.get(key)}
        template = _template(path, config.get("chat_template"))
        ids = _beside(path, "generation_config.json").get("eos_token_id")
        ends = {int(number) for number in (ids if isinstance(ids, list) else [] if ids is None else [ids])}
    except (ValueError, AttributeError, KeyError, TypeError) as error:
        raise FormatError(f"{path.parent}: malformed configuration of a tokenizer: {error!r}") from error
    known = {tokenizer.token_to_id(word) for word in _ending(tokenizer.get_vocab())} | {
        tokenizer.token_to_id(named.get("eos_token", ""))
    }
    ends |= {number for number in known if number is not None}
    begin = tokenizer.token_to_id(named["bos_token"]) if config.get("add_bos_token") and "bos_token" in named else None
    return Tokens(tokenizer, frozenset(ends), begin, template, named)


def _beside(path: Path, name: str) -> Any:
    """The content of a JSON file in the same folder, or an empty dictionary."""
    beside = path.with_name(name)
    try:
        return json.loads(beside.read_text(encoding="utf-8")) if beside.is_file() else {}
    except ValueError as error:
        raise FormatError(f"{beside}: this is not JSON: {error}") from error


def _template(path: Path, given: Any) -> str | None:
    """The chat template in a file of its own, else that of the configuration: text, or a list of named ones."""
    beside = path.with_name("chat_template.jinja")
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    if isinstance(given, list):
        given = {one["name"]: one["template"] for one in given}.get("default")
    return given if isinstance(given, str) else None


def _word(value: Any) -> str:
    return str(value["content"] if isinstance(value, dict) else value)
