"""Decoders of language whose caches grow by each token: run without a new plan for each length.

A program gives the caches that the run before returned. Here they are states of dovetail (see `STATE`) that have room for more
tokens; what a run returns are views of their rows in use. So a run whose caches are those of the run before copies nothing.
"""

import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail import CompiledModel, InferRequest, Model, TensorType
from dovetail.dataclass import dataclass
from dovetail.errors import DovetailError

__all__ = ["Decoder"]

_log = logging.getLogger("dovetail.onnxruntime")

_MASK = "attention_mask"
_TOKENS = ("input_ids", "inputs_embeds")
"""The names of the input with the new tokens: [batch, tokens] or [batch, tokens, width]."""
_FEW = 16
"""Tokens of a run up to which it continues a text. A prompt is planned for its length."""
_ROOM = 256
"""The fewest tokens for which caches have room; they get four times as many when these are used up."""
_TEXTS = 4
"""Texts whose caches are kept: a program may continue several in turn."""

Array = NDArray[Any]


class Decoder:
    """Runs of one model by states. `compile` compiles a model as the session's is compiled.

    `caches` maps inputs to the outputs that continue them, `axis` is the axis of their tokens.
    """

    def __init__(self, model: Model, compile: Callable[[Model], CompiledModel], caches: Mapping[str, str], axis: int) -> None:  # noqa: A002
        self._model, self._compile, self._caches, self._axis = model, compile, caches, axis
        self._outputs = tuple(model.graph.outputs)
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._texts: list[_Text] = []
        self._is_usable = True

    @staticmethod
    def of(model: Model, compile: Callable[[Model], CompiledModel]) -> "Decoder | None":  # noqa: A002
        """For a model with caches that grow, by the names that exporters give them; None for others."""
        mask, outputs = model.inputs.get(_MASK), model.graph.outputs
        if mask is None or mask.shape is None or len(mask.shape) != 2 or isinstance(mask.shape[1], int):
            return None
        caches, axes = {}, set()
        for name, declared in model.inputs.items():
            if name.startswith("past_key_values"):
                caches[name] = name.replace("past_key_values", "present", 1)
                axes.add(_growing(declared))
        axis = axes.pop() if len(axes) == 1 else 0
        return Decoder(model, compile, caches, axis) if axis and outputs and set(caches.values()) <= {*outputs} else None

    def run(self, feed: Mapping[str, Any]) -> Sequence[Any] | None:
        """The outputs in order; None for a run that does not continue a text, or that only the plain model can make."""
        if not self._is_usable:
            return None
        step = self._step(feed)
        if step is None:
            return None
        try:
            text = self._text(feed, step)
            found = text.run(feed, step)
        except DovetailError as error:  # the plain model runs, or says in its words what is wrong
            self._is_usable = False
            _log.info("%s: each length of the caches is planned anew, because %s", self._model.source, error.message)
            return None
        with self._lock:
            if text.held is self._held:
                self._texts = [*self._texts, text][-_TEXTS:]
        by_name = {**found, **text.views}
        return [by_name[name] for name in self._outputs]

    def _step(self, feed: Mapping[str, Any]) -> "_Step | None":
        mask, pasts = feed.get(_MASK), [feed.get(name) for name in self._caches]
        if not all(type(one) is np.ndarray for one in (mask, *pasts)):
            return None
        assert mask is not None
        batch, total = mask.shape
        before = pasts[0].shape[self._axis]  # type: ignore[union-attr]
        is_alike = all(one.shape[0] == batch and one.shape[self._axis] == before for one in pasts)  # type: ignore[union-attr]
        if not is_alike or not before or not 1 <= total - before <= _FEW or not (mask == 1).all():
            return None
        tokens = next((feed[name] for name in _TOKENS if name in feed), None)
        if type(tokens) is not np.ndarray or tokens.shape[:2] != (batch, total - before):
            return None  # lengths that contradict each other: the plain model says so
        return _Step(batch, before, total)

    def _text(self, feed: Mapping[str, Any], step: "_Step") -> "_Text":
        """The text that the run continues, which is nobody else's meanwhile."""
        with self._lock:
            for text in self._texts:
                if text.is_continued(feed):
                    self._texts.remove(text)
                    if step.total <= text.held.room:
                        return text
                    break
            held = self._held_for(step)
        text = _Text(held, self._caches, self._axis)
        text.fill(feed, step)
        return text

    def _held_for(self, step: "_Step") -> "_Held":
        held = self._held
        if held is not None and held.batch == step.batch and step.total <= held.room:
            return held
        room = _ROOM
        while room < step.total:
            room *= 4
        self._texts, self._held = [], None  # the memory of the old one is needed
        self._held = held = _Held(self._compile(self._sized(step.batch, room)), step.batch, room)
        return held

    def _sized(self, batch: int, room: int) -> Model:
        shapes: dict[str, Sequence[Any]] = {_MASK: (batch, room)}
        for name in self._caches:
            dims = self._model.inputs[name].shape
            assert dims is not None
            shapes[name] = tuple(room if at == self._axis else d if at else batch for at, d in enumerate(dims))
        return self._model.reshape(shapes).with_states(",".join(f"{past}:{present}" for past, present in self._caches.items()))


@dataclass(frozen=True)
class _Step:
    """A run: so many texts, with caches of so many tokens before it and after it."""

    batch: int
    before: int
    total: int


@dataclass(frozen=True)
class _Held:
    """The model with states that have `room` for so many tokens."""

    compiled: CompiledModel
    batch: int
    room: int


class _Text:
    """The caches of one text, or of one batch of texts."""

    def __init__(self, held: _Held, caches: Mapping[str, str], axis: int) -> None:
        self.held, self._caches, self._axis = held, caches, axis
        self._request: InferRequest = held.compiled.create_infer_request()
        self._mask = np.zeros((held.batch, held.room), np.int64)
        self.views: Mapping[str, Array] = {}

    def is_continued(self, feed: Mapping[str, Array]) -> bool:
        """Whether the caches that are given are those that the last run returned."""
        return bool(self.views) and all(_is_same(feed[past], self.views[present]) for past, present in self._caches.items())

    def fill(self, feed: Mapping[str, Array], step: _Step) -> None:
        """Copy the caches that are given."""
        for past, state in self._request.query_state().items():
            self._rows(state, step.before)[...] = feed[past]

    def run(self, feed: Mapping[str, Array], step: _Step) -> Mapping[str, Any]:
        """One run: the outputs besides the caches."""
        self._mask[:, : step.total] = 1
        found = dict(self._request.infer({**{n: v for n, v in feed.items() if n not in self._caches}, _MASK: self._mask}))
        after = self._request.query_state()  # other arrays where a device keeps states in its own memory
        self.views = {present: self._rows(after[past], step.total) for past, present in self._caches.items()}
        return found

    def _rows(self, state: Array, count: int) -> Array:
        return state[(*(slice(None),) * self._axis, slice(count))]


def _growing(declared: TensorType) -> int:
    """The axis whose size is open besides that of texts, axis 0; 0 unless there is just one."""
    found = [axis for axis, size in enumerate(declared.shape or ()) if axis and not isinstance(size, int)]
    return found[0] if len(found) == 1 else 0


def _is_same(given: Array, view: Array) -> bool:
    """Whether two arrays of one type are the same elements in memory: programs hand them through other libraries."""
    return given is view or (given.shape, given.strides, given.ctypes.data) == (view.shape, view.strides, view.ctypes.data)
