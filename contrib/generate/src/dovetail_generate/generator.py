"""Prompts to text, piece by piece."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import dovetail
from dovetail.errors import UsageError
from dovetail_generate.decoding import Apart, Decoding
from dovetail_generate.growing import GrowingDecoding
from dovetail_generate.lookup import guess
from dovetail_generate.sampling import Sampling
from dovetail_generate.tokens import Tokens, of_file, of_metadata

__all__ = ["Piece", "TextGenerator", "device_for"]

DEFAULT_DEVICE = "DEFAULT"

_PACKED = frozenset({"MulMat", "MatMulNBits"})
"""Products by packed weights, as .gguf files and com.microsoft name them."""


def device_for(core: dovetail.Core, model: dovetail.Model) -> str:
    """The device for a model where none was named.

    Products by packed weights are fastest on devices that build kernels, also on CPUs: a token of a model as large as
    SmolLM2-135M takes 10 ms of CPU time there, 25 on ONEDNN and 43 on NUMPY. So they go first.
    """
    if not any(node.op.op_type in _PACKED for node in model.graph.nodes):
        return DEFAULT_DEVICE
    ordered = tuple(sorted(core.devices, key=lambda info: not info.builds_kernels))
    return DEFAULT_DEVICE if ordered == core.devices else f"AUTO:{','.join(info.name for info in ordered)}"


@dataclass(frozen=True)
class Piece:
    """The addition of one token to a text.

    `index` is that of the prompt. `text` may be empty, when a character is not complete yet or may begin a stop word. `ended` is
    empty while the text goes on, else `token` (the model ended it), `stop` (a stop word), `limit`, or `room`.
    """

    index: int
    token: int
    text: str
    ended: str = ""


class TextGenerator:
    """A language model that continues texts::

        generator = TextGenerator("model.gguf")
        for piece in generator.chat([{"role": "user", "content": "What is an ocean?"}]):
            print(piece.text, end="", flush=True)

    `tokenizer` is a tokenizer.json; by default the one in the .gguf file, or beside another one. `room` is how many tokens a
    prompt and its continuation may have together, at most as many as the model was trained for. `properties` are those of
    `Core.compile_model`. `draft` is a smaller model with the same tokens, which guesses where `generate` is asked to `lookup`
    tokens. Used by one thread at a time. Raises `FormatError` and `UsageError`.
    """

    def __init__(
        self,
        model: "str | PathLike[str] | dovetail.Model",
        device: str = DEFAULT_DEVICE,
        *,
        tokenizer: "str | PathLike[str] | None" = None,
        room: int = 2048,
        properties: Mapping[str, Any] | None = None,
        core: dovetail.Core | None = None,
        draft: "TextGenerator | None" = None,
    ) -> None:
        self._core = core or dovetail.Core()
        self.model = model if isinstance(model, dovetail.Model) else self._core.read_model(model)
        self.tokens = _tokens(self.model, tokenizer)
        trained = self.model.metadata.get(f"{self.model.metadata.get('general.architecture')}.context_length")
        self.room = min(room, int(trained)) if trained is not None and trained.isdecimal() else room
        if self.room < 2:
            raise UsageError(f"room for {room} tokens; accepted: 2 or more")
        self._device, self._properties, self._draft = device, dict(properties or {}), draft
        if draft is not None:
            self._check_draft(draft)
        self._decoding: tuple[int, Decoding | Apart | GrowingDecoding] | None = None
        self.seconds: dict[str, float] = {}

    @property
    def device(self) -> str:
        """The device of the last texts, or the one that was asked for."""
        return self._device if self._decoding is None else self._decoding[1].device

    @property
    def plans(self) -> int:
        """How many plans the model has."""
        return 0 if self._decoding is None else self._decoding[1].plans

    def chat(self, messages: Sequence[Mapping[str, str]], **options: Any) -> Iterator[Piece]:
        """The answer to messages of `role` and `content`, by the model's chat template; `options` as for `generate`.

        What the messages begin with is not computed again if the call before had it too.
        """
        return self.generate([self.tokens.chat(messages)], **options)

    def generate(
        self,
        prompts: Sequence[str | Sequence[int]],
        *,
        limit: int = 256,
        sampling: Sampling | None = None,
        stop: Sequence[str] = (),
        ends: bool = True,
        lookup: int = 0,
    ) -> Iterator[Piece]:
        """The continuations of prompts, which are texts or tokens, together: after each step a piece of each that goes on.

        At most `limit` tokens each; a text ends before the first of the words in `stop`, and, if `ends`, before a token by which
        the model ends it. With `lookup` that many tokens are guessed, by the draft model or from what followed the last ones
        earlier in the text, and checked in one run: the same tokens, in less time where guesses are right. It needs temperature
        0. `seconds` then has `load` (0 where the model was compiled before), `first_token` and `rest`.
        """
        if isinstance(prompts, str) or not prompts or limit < 1 or not all(stop):
            raise UsageError(
                f"{len(prompts)} prompts, limit {limit}; accepted: a list of one or more, 1 or more, stop words not empty"
            )
        chosen = sampling or Sampling()
        if lookup < 0 or (lookup and not chosen.is_greedy):
            raise UsageError(
                f"lookup of {lookup} tokens at temperature {chosen.temperature}; accepted: 0 or more, at temperature 0"
            )
        texts = [
            self.tokens.encode(prompt) if isinstance(prompt, str) else [int(token) for token in prompt] for prompt in prompts
        ]
        return self._generate(texts, limit, chosen, tuple(stop), ends, lookup)

    def _generate(
        self, texts: list[list[int]], limit: int, sampling: Sampling, stop: tuple[str, ...], ends: bool, lookup: int
    ) -> Iterator[Piece]:
        started = time.perf_counter()
        decoding = self._loaded(texts)
        self.seconds = {"load": time.perf_counter() - started, "first_token": 0.0, "rest": 0.0}
        started = time.perf_counter()
        writers = [_Writer(self.tokens.stream(), stop) for _ in texts]
        generators = sampling.generators(len(texts))
        rests, has_begun = [limit] * len(texts), False
        while any(rests):
            guesses = self._guesses(texts, rests, lookup) if lookup else [[] for _ in texts]
            logits = decoding.checked(texts, guesses, lookup) if lookup else decoding.logits(texts)[:, None]
            now = time.perf_counter()
            if has_begun:
                self.seconds["rest"] = now - started
            else:
                self.seconds["first_token"], started, has_begun = now - started, now, True
            for index in [index for index, rest in enumerate(rests) if rest]:
                # The logits after a guess count if that is the token which is chosen before it.
                for row, guessed in zip(logits[index], [*guesses[index], None], strict=False):
                    token = sampling.choose(row, generators[index], texts[index])
                    ended = "token" if ends and token in self.tokens.ends else ""
                    text, stopped = ("", False) if ended else writers[index].add(token)
                    texts[index].append(token)
                    full = "limit" if rests[index] == 1 else "room" if len(texts[index]) >= self.room else ""
                    ended = ended or ("stop" if stopped else full)
                    rests[index] = 0 if ended else rests[index] - 1
                    yield Piece(index, token, text + ("" if not ended or stopped else writers[index].rest()), ended)
                    if ended:
                        texts[index].pop()  # a text that has ended only keeps its place
                    if ended or token != guessed:
                        break

    def _guesses(self, texts: Sequence[Sequence[int]], rests: Sequence[int], count: int) -> list[list[int]]:
        """At most `count` tokens that may follow each text that goes on."""
        if self._draft is None:
            return [guess(text, count) if rest else [] for text, rest in zip(texts, rests, strict=True)]
        return self._draft.likely(texts, count)

    def likely(self, texts: Sequence[Sequence[int]], count: int) -> list[list[int]]:
        """The `count` tokens that this model finds most likely to follow each text, one after the other; none without room.

        The last one is in the caches too, so that a text that goes on behind it needs one run for one token.
        """
        found: list[list[int]] = [[] for _ in texts]
        if any(len(text) + count > self.room for text in texts):
            return found
        decoding = self._loaded(texts)
        for step in range(count + 1):
            logits = decoding.logits([[*text, *guessed] for text, guessed in zip(texts, found, strict=True)])
            for guessed, row in zip(found, logits, strict=True):
                guessed += [int(row.argmax())] if step < count else []
        return found

    def _check_draft(self, draft: "TextGenerator") -> None:
        if draft.model.growth is not None:
            raise UsageError(
                f"the draft model {draft.model.source} has states that grow, which cannot take back tokens",
                hint="accepted: .gguf files, and .onnx files with caches",
            )
        own, other = (one.tokens.tokenizer.get_vocab() for one in (self, draft))
        if own != other:
            given = f"the draft model {draft.model.source} has {len(other)} tokens, {self.model.source} has {len(own)}"
            raise UsageError(f"{given}, not all the same", hint="accepted: a model with the same tokenizer")

    def _loaded(self, texts: Sequence[Sequence[int]]) -> Decoding | Apart | GrowingDecoding:
        """The model compiled for so many texts."""
        if self._decoding is None or self._decoding[0] != len(texts):
            self.close()
            device = device_for(self._core, self.model) if self._device == DEFAULT_DEVICE else self._device
            kind = Decoding if self.model.growth is None else GrowingDecoding
            decoding: Decoding | Apart | GrowingDecoding
            decoding = kind(self._core, self.model, device, len(texts), self.room, self._properties)
            # Files that declare their states have models that count the tokens of each text.
            if len(texts) > 1 and isinstance(decoding, Decoding) and not self.model.graph.states and not decoding.runs_together():
                decoding.close()
                one = Decoding(self._core, self.model, device, 1, self.room, self._properties)
                decoding = Apart(one, len(texts))
            self._decoding = len(texts), decoding
            decoding.plan(max(map(len, texts)))
        return self._decoding[1]

    def close(self) -> None:
        """Free the compiled model; it is compiled again when it is needed."""
        if self._decoding is not None:
            self._decoding[1].close()
        self._decoding = None


class _Writer:
    """The characters of one text, held back as long as they may be the beginning of a stop word."""

    def __init__(self, stream: Any, stop: tuple[str, ...]) -> None:
        self._stream, self._stop, self._held = stream, stop, ""

    def add(self, token: int) -> tuple[str, bool]:
        """The text that can be shown now, and whether a stop word came, which is left out with what follows."""
        self._held += self._stream(token) or ""
        places = [place for word in self._stop if (place := self._held.find(word)) >= 0]
        if places:
            return self._held[: min(places)], True
        lengths = [size for word in self._stop for size in range(1, len(word)) if self._held.endswith(word[:size])]
        kept = len(self._held) - max(lengths, default=0)
        shown, self._held = self._held[:kept], self._held[kept:]
        return shown, False

    def rest(self) -> str:
        """The text that was held back, at its end."""
        found, self._held = self._held, ""
        return found


def _tokens(model: dovetail.Model, tokenizer: "str | PathLike[str] | None") -> Tokens:
    if tokenizer is not None:
        return of_file(Path(tokenizer))
    if model.format == "gguf":
        return of_metadata(model.metadata, model.source)
    beside = Path(model.source).with_name("tokenizer.json")
    if not beside.is_file():
        raise UsageError(
            f"{model.source} has no tokenizer", hint="put its tokenizer.json beside it, or give it: --tokenizer FILE"
        )
    return of_file(beside)
