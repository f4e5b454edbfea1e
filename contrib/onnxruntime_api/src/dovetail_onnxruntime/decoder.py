"""Decoders of language whose caches grow by each token: run without a new plan for each length.

A program gives the caches that the run before returned. Here they are states of dovetail (see `STATE`) that have room for more
tokens; what a run returns are views of their rows in use. So a run whose caches are those of the run before copies nothing.
"""

import logging
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail import CompiledModel, Graph, InferRequest, Model, TensorType
from dovetail.dataclass import dataclass
from dovetail.errors import DovetailError
from dovetail.graph import DType

__all__ = ["Decoder"]

_log = logging.getLogger("dovetail.onnxruntime")

_MASK = "attention_mask"
_LENGTHS = "cache_lengths"
"""An input that is added for the pass `hold_caches`: the tokens of each text."""
_TOKENS = ("input_ids", "decoder_input_ids", "inputs_embeds", "decoder_inputs_embeds")
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

    `caches` maps inputs to the outputs that continue them, `axis` is the axis of their tokens. `tokens` is the input with the new
    tokens, `mask` that with a value for each token, "" without one. `flags` are inputs that choose branches.
    """

    def __init__(
        self,
        model: Model,
        compile: Callable[[Model], CompiledModel],  # noqa: A002
        caches: Mapping[str, str],
        axis: int,
        tokens: str,
    ) -> None:
        self._model, self._compile, self._caches, self._axis, self._tokens = model, compile, caches, axis, tokens
        self._mask, self._flags = _mask(model), _flags(model)
        self._outputs = tuple(model.graph.outputs)
        self._lock = threading.Lock()
        self._held: _Held | None = None
        self._texts: list[_Text] = []
        self._is_usable = True

    @staticmethod
    def of(model: Model, compile: Callable[[Model], CompiledModel]) -> "Decoder | None":  # noqa: A002
        """For a model with tokens and caches that grow; None for others."""
        tokens = next((name for name in _TOKENS if name in model.inputs), "")
        caches, axes = {}, set()
        for output in model.graph.outputs if tokens and _LENGTHS not in model.inputs else ():
            for past, axis in _continued(model.graph, output):
                declared = model.inputs.get(past)
                if declared is not None and declared.shape is not None and not isinstance(declared.shape[axis], int):
                    caches[past] = output
                    axes.add(axis % len(declared.shape))
        axis = axes.pop() if len(axes) == 1 else 0
        return Decoder(model, compile, caches, axis, tokens) if axis and len({*caches.values()}) == len(caches) else None

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
        tokens, pasts = feed.get(self._tokens), [feed.get(name) for name in self._caches]
        flags = {name: feed.get(name) for name in self._flags}
        masks = [feed.get(self._mask)] if self._mask else []
        if not all(type(one) is np.ndarray for one in (tokens, *pasts, *flags.values(), *masks)):
            return None
        batch, count = tokens.shape[:2]  # type: ignore[union-attr]
        before = pasts[0].shape[self._axis]  # type: ignore[union-attr]
        is_alike = all(one.shape[0] == batch and one.shape[self._axis] == before for one in pasts)  # type: ignore[union-attr]
        if not is_alike or not before or not 1 <= count <= _FEW or any(one.size != 1 for one in flags.values()):  # type: ignore[union-attr]
            return None
        if any(one.shape != (batch, before + count) for one in masks):  # type: ignore[union-attr]
            return None  # lengths that contradict each other: the plain model says so
        chosen = tuple((name, one.tobytes() != b"\0") for name, one in flags.items())  # type: ignore[union-attr]
        return _Step(batch, before, before + count, chosen)

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
        if held is not None and (held.batch, held.flags) == (step.batch, step.flags) and step.total <= held.room:
            return held
        room = _ROOM
        while room < step.total:
            room *= 4
        self._texts, self._held = [], None  # the memory of the old one is needed
        self._held = held = _Held(self._compile(self._sized(step, room)), step.batch, room, step.flags, self._mask)
        return held

    def _sized(self, step: "_Step", room: int) -> Model:
        shapes: dict[str, Sequence[Any]] = {self._mask: (step.batch, room)} if self._mask else {}
        for name in self._caches:
            dims = self._model.inputs[name].shape
            assert dims is not None
            shapes[name] = tuple(room if at == self._axis else d if at else step.batch for at, d in enumerate(dims))
        model = self._model.reshape(shapes)
        graph = model.graph
        flags = {name: np.full(graph.types[name].shape or (), flag) for name, flag in step.flags}
        graph = graph.replace(
            inputs=(*(name for name in graph.inputs if name not in flags), _LENGTHS),
            constants={**graph.constants, **flags},
            types={
                **graph.types,
                **{name: TensorType.of(flag, known=True) for name, flag in flags.items()},
                _LENGTHS: TensorType(DType.INT64, (step.batch,)),
            },
        )
        return replace(model, graph=graph).with_states(",".join(f"{past}:{present}" for past, present in self._caches.items()))


@dataclass(frozen=True)
class _Step:
    """A run: so many texts, with caches of so many tokens before it and after it."""

    batch: int
    before: int
    total: int
    flags: tuple[tuple[str, bool], ...]


@dataclass(frozen=True)
class _Held:
    """The model with states that have `room` for so many tokens."""

    compiled: CompiledModel
    batch: int
    room: int
    flags: tuple[tuple[str, bool], ...]
    mask: str


class _Text:
    """The caches of one text, or of one batch of texts."""

    def __init__(self, held: _Held, caches: Mapping[str, str], axis: int) -> None:
        self.held, self._caches, self._axis = held, caches, axis
        self._request: InferRequest = held.compiled.create_infer_request()
        self._left_out = {*caches, *(name for name, _ in held.flags)}
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
        given = {name: value for name, value in feed.items() if name not in self._left_out}
        given[_LENGTHS] = np.full(step.batch, step.total)
        if self.held.mask:
            mask = feed[self.held.mask]
            given[self.held.mask] = np.concatenate([np.zeros((step.batch, self.held.room - step.total), mask.dtype), mask], axis=1)
        found = dict(self._request.infer(given))
        after = self._request.query_state()  # other arrays where a device keeps states in its own memory
        self.views = {present: self._rows(after[past], step.total) for past, present in self._caches.items()}
        return found

    def _rows(self, state: Array, count: int) -> Array:
        return state[(*(slice(None),) * self._axis, slice(count))]


def _continued(graph: Graph, output: str) -> Iterator[tuple[str, int]]:
    """The values to which a Concat adds others for this output, in a branch or in the graph itself, with the axis."""
    node = graph.producers.get(output)
    if node is None:
        return
    if node.op.op_type == "Concat" and len(node.inputs) == 2:
        yield node.inputs[0], node.op.raw["axis"]
    for branch in node.op.subgraphs if node.op.op_type == "If" else ():
        yield from _continued(branch, branch.outputs[node.outputs.index(output)])


def _mask(model: Model) -> str:
    """The input with a value for each token of the caches and the new ones; "" without one."""
    declared = model.inputs.get(_MASK)
    if declared is None or declared.shape is None or len(declared.shape) != 2 or isinstance(declared.shape[1], int):
        return ""
    # That of an encoder is as long as its results.
    others = (size for name, one in model.inputs.items() if name != _MASK for size in one.shape or ())
    return "" if declared.shape[1] is not None and declared.shape[1] in others else _MASK


def _flags(model: Model) -> tuple[str, ...]:
    """The inputs that choose branches."""
    return tuple({node.inputs[0] for node in model.graph.nodes if node.op.op_type == "If"} & model.inputs.keys())


def _is_same(given: Array, view: Array) -> bool:
    """Whether two arrays of one type are the same elements in memory: programs hand them through other libraries."""
    return given is view or (given.shape, given.strides, given.ctypes.data) == (view.shape, view.strides, view.ctypes.data)
