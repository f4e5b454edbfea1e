"""Tokenizers of .gguf files: SentencePiece's against the algorithm as llama.cpp describes it; fields that are wrong."""

import itertools
import json
from typing import Any

import numpy as np
import pytest
from tokenizers.pre_tokenizers import ByteLevel

from dovetail.errors import FormatError
from dovetail_generate.tokens import Tokens, of_metadata

SPACE = "\u2581"
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, BYTE = 1, 2, 3, 4, 6
SPECIAL = [("<unk>", 0.0, UNKNOWN), ("<s>", 0.0, CONTROL), ("</s>", 0.0, CONTROL)]
BYTES = [(f"<0x{byte:02X}>", 0.0, BYTE) for byte in range(256)]

Entry = tuple[str, float, int]


def metadata(entries: list[Entry], **fields: str) -> dict[str, str]:
    words, scores, kinds = (list(column) for column in zip(*entries, strict=True))
    found = {"model": "llama", "tokens": json.dumps(words), "scores": json.dumps(scores), "token_type": json.dumps(kinds)}
    return {f"tokenizer.ggml.{key}": text for key, text in {**found, "bos_token_id": "1", "eos_token_id": "2", **fields}.items()}


def trained(rng: np.random.Generator, alphabet: str, count: int) -> list[Entry]:
    """Pieces of `alphabet` as training leaves them: each is made of two earlier ones, and has a lower score than these."""
    pieces = list(alphabet)
    while len(pieces) < count:
        left, right = rng.choice(pieces, 2)
        if left + right not in pieces and len(left + right) <= 6:
            pieces.append(left + right)
    return [(piece, -float(rank), NORMAL) for rank, piece in enumerate(pieces)]


def merged(text: str, entries: list[Entry]) -> list[int]:
    """The tokens of text without special ones: merge the neighbours whose piece has the greatest score, the left ones first."""
    number = {word: index for index, (word, _, _) in enumerate(entries)}
    parts = list(text.replace(" ", SPACE))
    while True:
        pairs = [(entries[number[a + b]][1], -at) for at, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in number]
        if not pairs:
            break
        at = -max(pairs)[1]
        parts[at : at + 2] = [parts[at] + parts[at + 1]]
    found = []
    for part in parts:
        found += [number[part]] if part in number else [number[f"<0x{byte:02X}>"] for byte in part.encode()]
    return found


@pytest.mark.parametrize("seed", range(4))
def test_pieces_merge_by_score(seed: int) -> None:
    rng = np.random.default_rng(seed)
    entries = [*SPECIAL, *BYTES, *trained(rng, f"{SPACE}abc", 60)]
    tokens = of_metadata(metadata(entries, add_space_prefix="false"), "m.gguf")
    for size in (1, 2, 7, 40, 300):
        text = "".join(
            rng.choice(list(" abcd\n\u00e9\u732b\U0001f98a"), size, p=[0.2, 0.2, 0.2, 0.2, 0.05, 0.05, 0.04, 0.03, 0.03])
        )
        assert tokens.encode(text) == [1, *merged(text, entries)]
        assert tokens.tokenizer.decode(tokens.encode(text)) == text


def test_by_hand() -> None:
    """`ab` has a greater score than `bc` and `aba`; unknown characters are bytes."""
    pieces = [SPACE, "a", "b", "c", "bc", "ab", "ba", "aba", f"{SPACE}ab"]
    entries = [
        *SPECIAL,
        *BYTES,
        *((piece, score, NORMAL) for piece, score in zip(pieces, [-9, -8, -7, -6, -3, -1, -2, -4, -5], strict=True)),
    ]
    tokens = of_metadata(metadata(entries), "m.gguf")
    number = {word: index for index, (word, _, _) in enumerate(entries)}

    def of(text: str) -> list[str]:
        found = tokens.encode(text)
        assert found[0] == number["<s>"]
        return [entries[index][0] for index in found[1:]]

    assert of("abc") == [f"{SPACE}ab", "c"]
    assert of("cbc") == [SPACE, "c", "bc"]
    assert of("ababa") == [f"{SPACE}ab", "aba"]
    assert of("cabab") == [SPACE, "c", "ab", "ab"]
    assert of("c\u00e9") == [SPACE, "c", "<0xC3>", "<0xA9>"]
    assert of("") == []
    # A space before each part between special tokens, which are found first.
    assert of("ab</s>ab<unk>") == [f"{SPACE}ab", "</s>", f"{SPACE}ab", "<unk>"]
    assert tokens.begin == 1
    assert tokens.ends == {2}


def _shown(tokens: Tokens, found: list[int]) -> list[str | None]:
    stream = tokens.stream()
    return [stream(token) for token in found]


def test_characters_of_several_bytes_are_streamed_whole() -> None:
    entries = [*SPECIAL, *BYTES, (SPACE, -1.0, NORMAL), ("a", -2.0, NORMAL), ("\n\n", 0.0, USER_DEFINED)]
    tokens = of_metadata(metadata(entries, add_bos_token="false"), "m.gguf")
    found = tokens.encode("a \u732b\n\na")
    assert [entries[index][0] for index in found] == [SPACE, "a", SPACE, "<0xE7>", "<0x8C>", "<0xAB>", "\n\n", SPACE, "a"]
    assert _shown(tokens, found) == [" ", "a", " ", None, None, "\u732b", "\n\n", " ", "a"]


ENTRIES = [*SPECIAL, *BYTES, ("a", -1.0, NORMAL)]
SIZE = len(ENTRIES)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"scores": "[1.0]"}, f"'tokenizer.ggml.scores' has 1 entries; accepted: one for each of {SIZE} tokens"),
        (
            {"scores": json.dumps([0.0] * (SIZE - 1) + [float("nan")])},
            rf"'tokenizer.ggml.scores' has nan at {SIZE - 1}; accepted: fin",
        ),
        ({"scores": '[0.0, "a"]'}, "'tokenizer.ggml.scores' has 'a' at 1"),
        ({"scores": "17"}, "'tokenizer.ggml.scores' is '17'; accepted: a list of finite numbers"),
        ({"tokens": "[1]"}, "'tokenizer.ggml.tokens' has 1 at 0; accepted: texts"),
        ({"tokens": "[]"}, r"'tokenizer.ggml.tokens' is '\[\]'"),
        ({"tokens": json.dumps(["x"] * SIZE)}, "'tokenizer.ggml.tokens' lacks <0x00>; accepted: a token for each byte"),
        ({"token_type": json.dumps([7] * SIZE)}, "'tokenizer.ggml.token_type' has 7 at 0; accepted: numbers from 1 to 6"),
        ({"token_type": "[1, 2]"}, "'tokenizer.ggml.token_type' has 2 entries"),
        ({"bos_token_id": str(SIZE)}, f"'tokenizer.ggml.bos_token_id' is {SIZE}; accepted: a number below {SIZE}"),
        ({"eos_token_id": "-1"}, "'tokenizer.ggml.eos_token_id' is -1"),
        ({"add_space_prefix": "1"}, "'tokenizer.ggml.add_space_prefix' is 1; accepted: true, false"),
    ],
)
def test_fields_that_are_wrong(fields: Any, message: str) -> None:
    with pytest.raises(FormatError, match=f"^m.gguf: {message}"):
        of_metadata(metadata(ENTRIES, **fields), "m.gguf")


@pytest.mark.parametrize("key", ["tokens", "scores", "token_type"])
def test_fields_that_are_missing(key: str) -> None:
    given = metadata(ENTRIES)
    del given[f"tokenizer.ggml.{key}"]
    with pytest.raises(FormatError, match=f"'tokenizer.ggml.{key}' is missing; accepted: a list of"):
        of_metadata(given, "m.gguf")


@pytest.mark.parametrize("merge", ["a", "a zz", "a b"])
def test_merges_that_are_wrong(merge: str) -> None:
    words = json.dumps(["a", "b"])
    fields = {"tokens": words, "token_type": "[1, 1]", "merges": json.dumps([merge]), "model": "gpt2", "pre": "gpt-2"}
    with pytest.raises(FormatError, match=f"'tokenizer.ggml.merges' has '?{merge}'?.*; accepted"):
        of_metadata({f"tokenizer.ggml.{key}": text for key, text in fields.items()}, "m.gguf")


def _splits(pre: str, text: str) -> list[str]:
    """The tokens of a text in a vocabulary of bytes, `abc`, which no merge gives, and merges of `1` and `2`, of `A` and `b`."""
    alphabet = sorted(ByteLevel.alphabet())
    words = ["<s>", *alphabet, "abc", "12", "121", "Ab", "\u010a\u010a", "\u0120\u0120"]
    merges = ["1 2", "12 1", "A b", "\u010a \u010a", "\u0120 \u0120"]
    kinds = [CONTROL, *[NORMAL] * (len(words) - 1)]
    fields = {"model": "gpt2", "pre": pre, "tokens": words, "token_type": kinds, "merges": merges, "bos_token_id": 0}
    given = {f"tokenizer.ggml.{key}": one if isinstance(one, str) else json.dumps(one) for key, one in fields.items()}
    tokens = of_metadata(given, "m.gguf")
    return [words[index] for index in tokens.encode(text)]


@pytest.mark.parametrize(
    ("pre", "text", "want"),
    [
        ("llama-bpe", "abc1212", ["<s>", "abc", "121", "2"]),
        ("dbrx", "abc1212", ["a", "b", "c", "121", "2"]),
        ("tekken", "abc121", ["<s>", "abc", "1", "2", "1"]),
        ("gpt-2", "12121", ["12", "121"]),
        ("smollm", "121", ["1", "2", "1"]),
        ("qwen2", "121 \n\n", ["1", "2", "1", "\u0120", "\u010a\u010a"]),
        ("gpt-4o", "cAbAb", ["c", "Ab", "Ab"]),
        ("default", "1212121", ["121", "2", "12", "1"]),
    ],
)
def test_splits_of_text(pre: str, text: str, want: list[str]) -> None:
    assert _splits(pre, text) == want
