"""Tokens to logits: prompts in parts, then token by token, over caches that the request keeps."""

import copy
import dataclasses
import logging
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

import dovetail
from dovetail.errors import DovetailError, UsageError
from dovetail.op import UnboundOperator
from dovetail.passes import drop_dead_nodes
from dovetail_generate.memory import give_back_freed_memory

__all__ = ["Apart", "Compiled", "Decoding", "require_room", "shared"]

_log = logging.getLogger("dovetail.generate")

_PARTS = (32, 128)
"""Tokens of a prompt that are run at once. Few sizes, because each needs a plan of its own."""

_BACK = "tokens_back"
"""An input of models in .gguf: for which tokens, counted from the last one, there are logits."""

_TRIMMED = 32
"""Tokens after which memory that was freed goes back to the system: 1 to 3 ms."""

_STATES = "past_key_values.*:present.*"

_INPUTS = frozenset({"input_ids", "attention_mask", "position_ids", _BACK})


class Compiled:
    """A model that is compiled for a device, with one request."""

    def __init__(self, core: dovetail.Core, model: dovetail.Model, device: str, properties: Any) -> None:
        self._compiled = core.compile_model(model, device, properties)
        self._request = self._compiled.create_infer_request()

    @property
    def device(self) -> str:
        """The name of the device."""
        return self._compiled.device

    @property
    def plans(self) -> int:
        """How many plans were made that are kept."""
        return len(self._compiled.plans)

    def close(self) -> None:
        """Free the model."""
        self._compiled.close()


class Decoding(Compiled):
    """A model compiled for `texts` texts at once of at most `room` tokens each.

    The model takes `input_ids`, `attention_mask` and caches, as the frontend for .gguf describes them; models in .onnx, whose
    caches are inputs and outputs named past_key_values.* and present.*, may also take `position_ids`. Raises `UsageError` for
    other models.
    """

    def __init__(self, core: dovetail.Core, model: dovetail.Model, device: str, texts: int, room: int, properties: Any) -> None:
        super().__init__(core, _sized(core, model, texts, room), device, properties)
        self.room = room
        self._parts = sorted({min(size, room) for size in _PARTS})
        self._cached: list[list[int]] = [[] for _ in range(texts)]
        self._places = np.arange(room)
        self._since = _TRIMMED  # the first run makes a plan

    def plan(self, longest: int) -> None:
        """Make the plans for prompts of at most so many tokens and for single tokens now."""
        graph = self._compiled.model.graph
        for size in (*self._sizes(longest), 1):
            open_input = (len(self._cached), size)
            self._compiled.plan(tuple(graph.types[n].dims if graph.types[n].is_static else open_input for n in graph.inputs))

    def runs_together(self) -> bool:
        """Whether the model runs texts of several lengths at once, tried with two tokens.

        It does not where it counts their tokens by the length of its caches, or has texts and heads in one dimension.
        """
        texts = [[0] for _ in self._cached]
        try:
            self.logits(texts)
            self.logits([[0, 0], *texts[1:]])
        except DovetailError as error:
            _log.info("%s: texts run one by one, because %s", self._compiled.model.source, error.message)
            return False
        return True

    def another(self) -> "Decoding":
        """The same model for other texts."""
        other = copy.copy(self)
        other._request, other._cached = self._compiled.create_infer_request(), [[] for _ in self._cached]
        return other

    def logits(self, texts: Sequence[Sequence[int]]) -> NDArray[Any]:
        """The logits [texts, vocabulary] of what follows these tokens. What they share with those of the last call is cached.

        Raises `UsageError` for texts that are longer than the room, or empty.
        """
        require_room(texts, self.room)
        counts = [shared(old, new) for old, new in zip(self._cached, texts, strict=True)]
        self._cached = [list(text[:count]) for text, count in zip(texts, counts, strict=True)]
        while True:
            # At least the last token of each text, whose logits nobody has kept.
            missing = max(max(len(text) - count, 1) for text, count in zip(texts, counts, strict=True))
            size = 1 if missing == 1 else self._sizes(missing)[0]
            ends = [
                min(max(count, len(text) - 1) + 1 if size == 1 else count + size, len(text))
                for text, count in zip(texts, counts, strict=True)
            ]
            found = self._run([text[max(0, end - size) : end] for text, end in zip(texts, ends, strict=True)], ends, size)
            counts, self._cached = ends, [list(text[:end]) for text, end in zip(texts, ends, strict=True)]
            if all(count == len(text) for count, text in zip(counts, texts, strict=True)):
                return found

    def checked(self, texts: Sequence[Sequence[int]], guesses: Sequence[Sequence[int]], count: int) -> NDArray[Any]:
        """The logits [texts, 1 + count, vocabulary] of what follows each text, and it with one guess after the other.

        There are at most `count` guesses for each text; logits after those that are fewer have no meaning. Without guesses, and
        where texts are not cached but for their last token, or have no room for guesses, there is one row for each text, as
        `logits` gives it.
        """
        known = all(shared(old, text) >= len(text) - 1 for old, text in zip(self._cached, texts, strict=True))
        if not any(guesses) or not known or any(len(text) + count > self.room for text in texts):
            return self.logits(texts)[:, None]
        filled = [[*text, *guessed, *[text[-1]] * (count - len(guessed))] for text, guessed in zip(texts, guesses, strict=True)]
        inputs = self._inputs([text[-1 - count :] for text in filled], [len(text) for text in filled], 1 + count)
        if _BACK in self._compiled.model.overridable:
            inputs[_BACK] = np.arange(count, -1, -1)
        found = self._infer(inputs)
        self._cached = filled
        return np.asarray(found.astype(np.float32))

    def _sizes(self, longest: int) -> list[int]:
        """The sizes of the parts in which so many tokens are run, the largest first."""
        if longest <= 1:
            return []
        return [next((size for size in self._parts if size >= longest), self._parts[-1])]

    def _run(self, parts: Sequence[Sequence[int]], ends: Sequence[int], size: int) -> NDArray[Any]:
        """The last tokens of each text before its end, at most `size`, which a short text is filled up to behind them."""
        last = np.array(ends)
        found = self._infer(self._inputs(parts, ends, size))
        if found.shape[1] == 1:
            return np.asarray(found[:, 0].astype(np.float32))
        rows = np.minimum(last, size) - 1
        return np.asarray(found[np.arange(len(parts)), rows].astype(np.float32, copy=False))  # the indices make a copy

    def _infer(self, inputs: dict[str, NDArray[Any]]) -> NDArray[Any]:
        try:
            found = self._request.infer(inputs, share_outputs=True)["logits"]
        except BaseException:
            self._cached = [[] for _ in self._cached]  # after a run that failed the caches are undefined
            raise
        self._since += inputs["input_ids"].shape[1]
        if self._since >= _TRIMMED:
            self._since = 0
            give_back_freed_memory()
        return found

    def _inputs(self, parts: Sequence[Sequence[int]], ends: Sequence[int], size: int) -> dict[str, NDArray[Any]]:
        ids = np.zeros((len(parts), size), np.int64)
        for row, part in zip(ids, parts, strict=True):
            row[: len(part)] = part
        last = np.array(ends)
        inputs = {"input_ids": ids, "attention_mask": (self._places < last[:, None]).astype(np.int64)}
        if "position_ids" in self._compiled.inputs:
            inputs["position_ids"] = np.maximum(last - size, 0)[:, None] + np.arange(size)
        return inputs


class Apart:
    """Texts that a model cannot run together: each by a request of its own. The methods are those of `Decoding`."""

    def __init__(self, one: Decoding, texts: int) -> None:
        self._one, self._each = one, [one, *(one.another() for _ in range(1, texts))]

    @property
    def device(self) -> str:
        """The name of the device."""
        return self._one.device

    @property
    def plans(self) -> int:
        """How many plans were made that are kept."""
        return self._one.plans

    def close(self) -> None:
        """Free the model."""
        self._one.close()

    def plan(self, longest: int) -> None:
        """Make the plans now."""
        self._one.plan(longest)

    def logits(self, texts: Sequence[Sequence[int]]) -> NDArray[Any]:
        """The logits [texts, vocabulary]."""
        return np.concatenate([one.logits([text]) for one, text in zip(self._each, texts, strict=True)])

    def checked(self, texts: Sequence[Sequence[int]], guesses: Sequence[Sequence[int]], count: int) -> Sequence[NDArray[Any]]:
        """The logits of each text: [1, vocabulary] or [1 + count, vocabulary]."""
        return [one.checked([text], [guess], count)[0] for one, text, guess in zip(self._each, texts, guesses, strict=True)]


def require_room(texts: Sequence[Sequence[int]], room: int) -> None:
    """Raise `UsageError` for texts that are longer than the room, or empty."""
    for text in texts:
        if not 0 < len(text) <= room:
            raise UsageError(f"a text has {len(text)} tokens; accepted: 1 to {room}", hint="give more room: --room")


def shared(old: list[int], new: Sequence[int]) -> int:
    """How many tokens both begin with."""
    if list(new[: len(old)]) == old:  # a text that goes on: 30 us less for 600 tokens
        return len(old)
    return next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _sized(core: dovetail.Core, model: dovetail.Model, texts: int, room: int) -> dovetail.Model:
    """The model with the sizes of its caches, which it keeps."""
    graph = model.graph
    if not {"input_ids", "attention_mask"} <= {*graph.inputs} or "logits" not in graph.outputs:
        raise UsageError(
            f"{model.source} has the inputs {', '.join(model.inputs)} and the outputs {', '.join(model.outputs)}",
            hint="accepted: a decoder with input_ids, attention_mask, past_key_values.*, logits and present.*, or growing states",
        )
    model = model if graph.states else model.with_states(_STATES)
    if others := [name for name in model.inputs if name not in _INPUTS]:
        raise UsageError(
            f"{model.source} has the inputs {', '.join(others)} besides tokens, mask, positions and caches",
            hint="accepted: decoders whose only states are caches past_key_values.* of keys and values",
        )
    shapes, sizes = {}, dict[Any, int | None]()
    for name in model.graph.states:
        shape = graph.types[name].shape
        if shape is None or len(shape) != 4 or not isinstance(shape[1], int):
            raise UsageError(
                f"the cache {name!r} of {model.source} is {graph.types[name]}; accepted: [batch, heads, length, size]"
            )
        size = shape[3] if isinstance(shape[3], int) else sizes.get(shape[3]) or _head_size(core, model, name, shape[1])
        if size is None:
            raise UsageError(
                f"the cache {name!r} of {model.source} is {graph.types[name]}, without the size of a head",
                hint="accepted: a number, or a GroupQueryAttention that reads the cache",
            )
        sizes[shape[3]] = size
        shapes[name] = (texts, shape[1], room, size)
    return model.reshape({"attention_mask": (texts, room), **shapes})


def _head_size(core: dovetail.Core, model: dovetail.Model, cache: str, heads: int) -> int | None:
    """The size of a head from what GroupQueryAttention attends to, where the cache has a name in its place: onnxruntime-genai
    writes such models. None for other operators."""
    graph = model.graph
    node = next((node for node in graph.nodes if cache in node.inputs), None)
    if node is None or node.op.op_type != "GroupQueryAttention" or not isinstance(node.op, UnboundOperator):
        return None
    # Without keys of their own, queries, keys and values are in one input.
    read, of = (node.inputs[1], heads) if node.inputs[1] else (node.inputs[0], node.op.raw["num_heads"] + 2 * heads)
    part = drop_dead_nodes(graph.replace(outputs=(read,), states={}))
    part = part.replace(inputs=tuple(name for name in part.inputs if name in part.consumers))
    found = core.analyze(dataclasses.replace(model, graph=part)).types.get(read)
    return found.dims[-1] // of if isinstance(found, dovetail.TensorType) and found.is_static else None
