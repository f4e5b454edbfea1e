"""Vocabularies in the metadata of .gguf files, checked field by field; and as tokenizers of the package `tokenizers`."""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers

from dovetail.errors import FormatError
from dovetail.frontend import printable
from dovetail.locks import cached_property

__all__ = ["BYTES", "CONTROL", "SPLITS", "Vocabulary"]

UNKNOWN, CONTROL, USER_DEFINED = 2, 3, 4
"""Kinds of tokens that are found in text as a whole."""

_KINDS = range(1, 7)

_ENDINGS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_LOWER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
_UPPER = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_REST = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_SPACES}"
_LINES = rf" ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"
_GPT_2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_QWEN_2 = rf"{_ENDINGS}|{_WORDS}|\p{{N}}|{_REST}"
_LLAMA_3 = rf"{_ENDINGS}|{_WORDS}|\p{{N}}{{1,3}}|{_REST}"
_GPT_4O = rf"{_LOWER}{_ENDINGS}?|{_UPPER}{_ENDINGS}?|\p{{N}}{{1,3}}|{_LINES}"

_WHOLE_WORDS = ("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "tekken")
"""Vocabularies whose words are tokens also where no merges give them, and whose texts begin with a token by default."""

SPLITS: Mapping[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT_2, r"\p{N}+", "[0-9][0-9][0-9]"),
    **dict.fromkeys(("gpt-2", "phi-2", "olmo", "mpt"), (_GPT_2,)),
    **dict.fromkeys(("smollm", "refact", "starcoder", "command-r"), (r"\p{N}", _GPT_2)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), (_QWEN_2,)),
    **dict.fromkeys(("dbrx", "smaug-bpe", *_WHOLE_WORDS[:5]), (_LLAMA_3,)),
    "tekken": (rf"{_LOWER}|{_UPPER}|\p{{N}}|{_LINES}",),
    **dict.fromkeys(("gpt-4o", "llama4"), (_GPT_4O,)),
}
"""How text is split into words: by each expression in turn, by the name in .gguf (llama.cpp, src/llama-vocab.cpp)."""

BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
"""The tokens of single bytes in vocabularies of SentencePiece."""

_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"
"""A space, as the tokens of SentencePiece have it."""


@dataclass(frozen=True)
class Vocabulary:
    """The tokens of a .gguf file with their kinds. Each method raises `FormatError` naming the field that is wrong."""

    metadata: Mapping[str, str]
    source: str

    @cached_property
    def words(self) -> list[str]:
        """The tokens by number."""
        return self._list("tokens", lambda one: isinstance(one, str), "texts")

    @cached_property
    def kinds(self) -> list[int]:
        """The kind of each token."""
        found = self._list("token_type", lambda one: type(one) is int and one in _KINDS, "numbers from 1 to 6")
        self._check_length("token_type", found)
        return found

    @property
    def numbers(self) -> dict[str, int]:
        """The tokens that begin and end a text, as far as there are some: bos, eos."""
        found = {}
        for key in ("bos", "eos"):
            name, size = f"tokenizer.ggml.{key}_token_id", len(self.words)
            if name in self.metadata:
                text = self.metadata[name]
                if not text.isascii() or not text.isdecimal() or int(text) >= size:
                    raise self._wrong(f"{key}_token_id", f"is {printable(text, 40)}", f"a number below {size}")
                found[key] = int(text)
        return found

    @staticmethod
    def begins(split: str) -> bool:
        """Whether texts begin with a token where nothing is said, in a vocabulary that splits text so."""
        return split in _WHOLE_WORDS

    def flag(self, key: str, default: bool) -> bool:
        """A field that is true or false."""
        text = self.metadata.get(f"tokenizer.ggml.{key}", str(default).lower())
        if text not in ("true", "false"):
            raise self._wrong(key, f"is {printable(text, 40)}", "true, false")
        return text == "true"

    def of_bytes(self, split: str) -> Tokenizer:
        """A BPE of bytes with a list of merges, as GPT-2 has it; `split` is one of `SPLITS`."""
        words, known = self.words, set(self.words)
        merges = self._list("merges", lambda one: isinstance(one, str) and " " in one[1:], "texts with a space")
        pairs = [_halves(merge) for merge in merges]
        for left, right in pairs:
            if left not in known or right not in known or left + right not in known:
                raise self._wrong("merges", f"has {printable(left + ' ' + right, 60)!r}", "two tokens that make a third one")
        vocabulary = {word: index for index, word in enumerate(words)}
        tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=pairs, ignore_merges=split in _WHOLE_WORDS))
        parts = [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in SPLITS[split]]
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*parts, pre_tokenizers.ByteLevel(False, use_regex=False)])
        tokenizer.decoder = decoders.ByteLevel()
        return self._with_whole(tokenizer, {CONTROL: True, USER_DEFINED: False})

    def of_pieces(self) -> Tokenizer:
        """A vocabulary of SentencePiece: of neighbours those merge first that make the piece of the greatest score.

        Characters that are not a piece become tokens of bytes.
        """
        words = self.words
        scores = self._list("scores", lambda one: isinstance(one, int | float) and math.isfinite(one), "finite numbers")
        self._check_length("scores", scores)
        vocabulary = {word: index for index, word in enumerate(words)}
        if missing := [name for name in BYTES if name not in vocabulary]:
            raise self._wrong("tokens", f"lacks {missing[0]}", "a token for each byte, <0x00> to <0xFF>")
        model = models.BPE(vocab=vocabulary, merges=_merges(vocabulary, scores), byte_fallback=True)
        tokenizer = Tokenizer(model)
        spaces = normalizers.Replace(" ", _SPACE)
        prefixed = self.flag("add_space_prefix", True)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if prefixed else spaces
        tokenizer.decoder = decoders.Sequence([decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
        return self._with_whole(tokenizer, {UNKNOWN: True, CONTROL: True, USER_DEFINED: False})

    def _with_whole(self, tokenizer: Tokenizer, special: Mapping[int, bool]) -> Tokenizer:
        """The tokenizer with the tokens of some kinds found as a whole."""
        for kind, is_special in special.items():
            found = [word for word, one in zip(self.words, self.kinds, strict=True) if one == kind and word]
            tokenizer.add_tokens([AddedToken(word, special=is_special, normalized=False) for word in found])
        return tokenizer

    def _list(self, key: str, fits: Callable[[Any], bool], accepted: str) -> list[Any]:
        text = self.metadata.get(f"tokenizer.ggml.{key}")
        if text is None:
            raise self._wrong(key, "is missing", f"a list of {accepted}")
        try:
            found = json.loads(text)
        except ValueError:
            found = text
        if not isinstance(found, list) or not found:
            raise self._wrong(key, f"is {printable(text, 40)!r}", f"a list of {accepted}")
        if (wrong := next((index for index, one in enumerate(found) if not fits(one)), None)) is not None:
            raise self._wrong(key, f"has {printable(repr(found[wrong]), 40)} at {wrong}", accepted)
        return found

    def _check_length(self, key: str, found: list[Any]) -> None:
        if len(found) != len(self.words):
            raise self._wrong(key, f"has {len(found)} entries", f"one for each of {len(self.words)} tokens")

    def _wrong(self, key: str, given: str, accepted: str) -> FormatError:
        return FormatError(f"{self.source}: 'tokenizer.ggml.{key}' {given}; accepted: {accepted}")


def _halves(merge: str) -> tuple[str, str]:
    left, _, right = merge[1:].partition(" ")
    return merge[0] + left, right


def _merges(vocabulary: Mapping[str, int], scores: list[float]) -> list[tuple[str, str]]:
    """Every pair of pieces that makes a piece, in the order in which they merge.

    Where two pairs that overlap make the same piece, the left one comes first: it is the one with the longer left half.
    """
    pairs: list[tuple[float, int, int, str, str]] = []
    for word, index in vocabulary.items():
        for at in range(len(word) - 1, 0, -1):
            if word[:at] in vocabulary and word[at:] in vocabulary:
                pairs.append((-scores[index], index, len(pairs), word[:at], word[at:]))
    return [(left, right) for *_, left, right in sorted(pairs)]
