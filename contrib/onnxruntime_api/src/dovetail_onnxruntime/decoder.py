"""Decoders of language whose caches grow by each token: run without a new plan for each length.

A program gives the caches that the run before returned. Here they are states of dovetail (see `STATE`) that have room for more
tokens; what a run returns are views of their rows in use. So a run whose caches are those of the run before copies nothing.
Caches of one length, of which the mask tells how much is in use, are returned in that length.
"""

import itertools
import logging
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail import CompiledModel, Graph, InferRequest, Model, TensorType
from dovetail.dataclass import dataclass
from dovetail.errors import DovetailError
from dovetail.graph import DType, Node
from dovetail.locks import Lock
from dovetail.op import UnboundOperator
from dovetail.passes import drop_dead_nodes
from dovetail_onnxruntime.growing import LENGTH, Growing, growing_caches
from dovetail_onnxruntime.providers import core

__all__ = ["Bound", "Decoder"]

_log = logging.getLogger("dovetail.onnxruntime")

_FEW = 16
"""Tokens of a run up to which it continues a text where attention looks at all of the room. More are planned for their length."""
_ROOM = 256
"""The fewest tokens for which caches have room; they get four times as many when these are used up."""
_TEXTS = 4
"""Texts whose caches are kept: a program may continue several in turn."""

_IDENTITY = UnboundOperator("", "Identity", 13, {})

Array = NDArray[Any]


class Decoder:
    """Runs of one model by states, which `growing` describes: as variants of the compiled model."""

    def __init__(self, compiled: CompiledModel, growing: Growing) -> None:
        self._compiled, self._model, self._growing = compiled, compiled.model, growing
        self._outputs = tuple(self._model.graph.outputs)
        self._lock = Lock()
        self._texts: list[_Text] = []
        self._refused: set[tuple[int, int]] = set()
        self._proven: set[tuple[int, int]] = set()
        self._is_on_host = True
        self._choices: dict[int, tuple[bool, ...]] = {}

    @staticmethod
    def of(compiled: CompiledModel) -> "Decoder | None":
        """For a model with caches that grow; None for others."""
        growing = growing_caches(compiled.model)
        return None if growing is None else Decoder(compiled, growing)

    def run(self, feed: Mapping[str, Any], bound: "Bound | None" = None) -> Sequence[Any] | None:
        """The outputs in order; None for a run that does not continue a text, or that only the plain model can make.

        `bound` is the memory for outputs. Where that of the caches is that of the inputs, they are read and written in place.
        """
        step = self._step(feed)
        if step is None:
            return None
        is_in_place = bound is not None and self._is_in_place(feed, bound, step)
        reason = ""
        for room in (step.given,) if is_in_place else _rooms_for(step):
            size = step.batch, room
            if size in self._refused:
                continue
            try:
                if bound is not None and is_in_place:
                    found = self._run_in_place(feed, bound, step)
                else:
                    text = self._text(feed, step, room)
                    found = text.run(feed, step)
                    with self._lock:
                        self._texts = [*self._texts, text][-_TEXTS:]
            except DovetailError as error:  # the plain model runs, or says in its words what is wrong
                if size in self._proven:
                    return None
                self._refused.add(size)
                reason = error.message
            else:
                self._proven.add(size)
                return [found[name] for name in self._outputs]
        if reason:
            _log.info("%s: each length of the caches is planned anew, because %s", self._model.source, reason)
        return None

    def _step(self, feed: Mapping[str, Any]) -> "_Step | None":
        """None for a run that does not add a few tokens to caches, or with sizes that contradict each other."""
        known = self._growing
        if not all(type(feed.get(name)) is np.ndarray for name in (known.tokens, *known.caches, *known.flags)):
            return None
        batch, count = feed[known.tokens].shape[:2]
        shapes = [feed[name].shape for name in known.caches]
        sizes = {(shape[0], shape[known.axis]) for shape in shapes}
        texts, given = sizes.pop()
        # Where a model counts its tokens, a prompt is the start of a text: no other model need be compiled for it.
        if sizes or texts != batch or not count or not (known.counts or (given and count <= _FEW)):
            return None
        total = self._total(feed[known.mask], batch, given, count) if known.mask else given + count
        if not total:
            return None
        is_chosen = all(feed[name].tolist() in (flag, [flag]) for name, flag in known.flags.items())
        rows = tuple((*shape[: known.axis], *shape[known.axis + 1 :]) for shape in shapes)
        # Texts of several lengths have their new rows in several places.
        is_even = not (known.counts and known.mask) or bool((feed[known.mask] == 1).all())
        chosen = self._chosen(total) if is_chosen else None
        return None if chosen is None else _Step(batch, given, total - count if is_even else 0, total, rows, chosen)

    def _chosen(self, total: int) -> tuple[bool, ...] | None:
        """The branches that the model takes by the length of its mask, for so many tokens; None where that is not known."""
        choices, found = self._growing.choices, self._choices.get(total)
        if choices is None or found is not None:
            return found or ()
        graph, mask = self._model.graph, self._growing.mask
        types = {**graph.types, mask: self._model.inputs[mask].with_shape((1, total))}
        part = drop_dead_nodes(Graph(choices.nodes, (mask,), choices.names, graph.constants, types))
        known = core().analyze(replace(self._model, graph=part)).constants
        if not known.keys() >= {*choices.names}:
            return None
        found = self._choices[total] = tuple(bool(known[name]) for name in choices.names)
        return found

    def _total(self, mask: Any, batch: int, given: int, count: int) -> int:
        """The tokens with those of this run, for each of which the mask has a value; 0 for other masks.

        Where a model counts the ones, the caches may have room: then these are no more than fit.
        """
        if type(mask) is not np.ndarray or mask.ndim != 2 or len(mask) != batch:
            return 0
        total, counts = mask.shape[1], self._growing.counts
        fits = total == given + count or (counts and count <= total <= given)
        return total if fits else 0

    def _text(self, feed: Mapping[str, Any], step: "_Step", room: int) -> "_Text":
        """The text that the run continues, which is nobody else's meanwhile, or a new one with room for so many tokens."""
        with self._lock:
            for text in self._texts:
                if text.is_continued(feed):
                    if step.is_in_room and text.returned() > 1:
                        break  # arrays of an earlier run would change
                    self._texts.remove(text)
                    if step.returned <= text.held.room and step.chosen == text.held.chosen:
                        return text
                    break
            held = self._held_for(step, room)
            forgotten = next((one for one in self._texts if one.held == held and one.is_forgotten()), None)
            if forgotten is not None:
                self._texts.remove(forgotten)
        text = forgotten or _Text(held, self._growing)
        text.fill(feed, step)
        return text

    def _is_in_place(self, feed: Mapping[str, Array], bound: "Bound", step: "_Step") -> bool:
        """Whether the caches, which have room, are written where they are read, each in memory of its own."""
        if not (self._is_on_host and self._growing.counts and step.is_in_room):
            return False
        pairs = [(feed[past], bound.targets.get(present)) for past, present in self._growing.caches.items()]
        if not all(one is other or (type(other) is np.ndarray and _place(one) == _place(other)) for one, other in pairs):
            return False
        if bound.text is not None and bound.text.is_of(feed, step):
            return True
        ranges = sorted((array.ctypes.data, array.ctypes.data + array.nbytes) for array, _ in pairs)
        apart = all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))
        return apart and all(array.flags.carray for array, _ in pairs)

    def _run_in_place(self, feed: Mapping[str, Array], bound: "Bound", step: "_Step") -> Mapping[str, Any]:
        text = bound.text
        if text is None or not text.is_of(feed, step):
            held = self._held_for(step, step.given)
            bound.text = text = _InPlace(held, self._growing, {past: feed[past] for past in self._growing.caches})
        try:
            found = text.run(feed, step)
        except DovetailError:
            bound.text = None  # its states are in other arrays now
            raise
        self._is_on_host = text.is_on_host
        return found

    def _held_for(self, step: "_Step", room: int) -> "_Held":
        """The model with room for so many tokens."""
        key = step.rows, room, step.chosen
        return _Held(self._compiled.variant(key, lambda: self._sized(step, room)), room, step.chosen)

    def _sized(self, step: "_Step", room: int) -> Model:
        known = self._growing
        shapes: dict[str, Sequence[Any]] = {known.mask: (step.batch, room)} if known.mask else {}
        for name, rows in zip(known.caches, step.rows, strict=True):
            shapes[name] = (*rows[: known.axis], room, *rows[known.axis :])
        graph = self._model.reshape(shapes).graph
        flags = {name: np.full([1] * len(graph.types[name].shape or ()), flag) for name, flag in known.flags.items()}
        names = () if known.choices is None else known.choices.names
        fixed = {**flags, **{name: np.array(chosen) for name, chosen in zip(names, step.chosen, strict=True)}}
        types = {name: TensorType.of(value, known=True) for name, value in fixed.items()}
        types |= {new: graph.types[name] for name, new in known.renamed.items()}
        copies = [Node(f"{new} as {name}", _IDENTITY, (new,), (name,)) for name, new in known.renamed.items()]
        graph = graph.replace(
            nodes=(*copies, *(node for node in graph.nodes if fixed.keys().isdisjoint(node.outputs))),
            inputs=(*(known.renamed.get(name, name) for name in graph.inputs if name not in flags), LENGTH),
            constants={**graph.constants, **fixed},
            types={**graph.types, **types, LENGTH: TensorType(DType.INT64, (1,))},
        )
        states = ",".join(f"{past}:{present}" for past, present in known.caches.items())
        return replace(self._model, graph=graph).with_states(states)


@dataclass(frozen=True)
class _Step:
    """A run: so many texts, with caches `given` in some length, whose first `before` rows stay, of so many tokens after it.

    `rows` are the other sizes of the caches, `chosen` what the model chooses by its length.
    """

    batch: int
    given: int
    before: int
    total: int
    rows: tuple[tuple[int, ...], ...]
    chosen: tuple[bool, ...]

    @property
    def returned(self) -> int:
        """The length of the caches that the run returns."""
        return max(self.given, self.total)

    @property
    def is_in_room(self) -> bool:
        """Whether the caches that are given have room for the tokens of this run."""
        return self.total <= self.given


def _rooms_for(step: _Step) -> Sequence[int]:
    """For how many tokens the caches of a step get room: half of it where a model has no positions for more."""
    room = _ROOM
    while room < step.returned:
        room *= 4
    return [room] if room // 2 < step.returned else [room, room // 2]


@dataclass(frozen=True)
class _Held:
    """The model with states that have `room` for so many tokens."""

    compiled: CompiledModel
    room: int
    chosen: tuple[bool, ...]


class _Text:
    """The caches of one text, or of one batch of texts."""

    def __init__(self, held: _Held, growing: Growing) -> None:
        self.held, self._growing = held, growing
        self._request: InferRequest = held.compiled.create_infer_request()
        self._given: list[tuple[Any, ...]] = []
        self._views: list[weakref.ref[Array]] = []
        self._used = 0
        self._copies: dict[str, Array] = {}
        self._places: dict[str, tuple[Array, tuple[Any, ...]]] = {}
        self._leases: list[weakref.ref[_Lease]] = []

    def is_continued(self, feed: Mapping[str, Array]) -> bool:
        """Whether the caches that are given are those that the last run returned, as arrays or in other ones."""
        caches, views = self._growing.caches, self._views
        if views and all(view() is feed[past] for past, view in zip(caches, views, strict=True)):
            return all(feed[past].shape == place[1] for past, place in zip(caches, self._given, strict=True))
        return [_place(feed[past]) for past in caches] == self._given

    def is_forgotten(self) -> bool:
        """Whether the program has no array of these caches any more, so that others can take their place."""
        return not self.returned()

    def returned(self) -> int:
        """The runs of which the program has arrays of these caches."""
        self._leases = [lease for lease in self._leases if lease() is not None]
        return len(self._leases)

    def fill(self, feed: Mapping[str, Array], step: _Step) -> None:
        """Copy the caches that are given."""
        axis = self._growing.axis
        for past, state in self._request.query_state().items():
            rows = np.moveaxis(state, axis, 0)
            rows[: step.given] = np.moveaxis(feed[past], axis, 0)
            rows[step.given : self._used] = 0  # an infinity of another text, by a weight of 0, would be NaN
            if past in self._copies:
                self._rows(self._copies[past], step.given)[...] = feed[past]

    def run(self, feed: Mapping[str, Array], step: _Step) -> Mapping[str, Any]:
        """One run: all outputs."""
        known, found = self._growing, dict(self._request.infer(_inputs(feed, step, self._growing, self.held.room)))
        states, lease = self._request.query_state(on_device=True), _Lease()
        self._leases.append(weakref.ref(lease))
        views, places, axis = dict[str, Array](), [], known.axis
        for past, present in known.caches.items():
            state = self._on_host(past, states[past], feed, step)
            address, shape, strides = self._place_of(past, state)
            shape = (*shape[:axis], step.returned, *shape[axis + 1 :])
            places.append((address, shape, strides))
            views[present] = _leased(state, lease, places[-1], past in self._copies)
        self._given, self._used = places, step.returned
        self._views = [weakref.ref(view) for view in views.values()]
        return {**found, **views}

    def _place_of(self, past: str, state: Array) -> tuple[Any, ...]:
        """As `_place`: states seldom move."""
        known = self._places.get(past)
        if known is None or known[0] is not state:
            known = self._places[past] = state, _place(state)
        return known[1]

    def _on_host(self, past: str, state: Any, feed: Mapping[str, Array], step: _Step) -> Array:
        """The state, where it is in the host's memory; else a copy, to which the new rows come from the device."""
        if isinstance(state, np.ndarray):
            return state
        copy = self._copies.get(past)
        if copy is None:
            copy = self._copies[past] = np.zeros(state.shape, state.dtype)
            self._rows(copy, step.given)[...] = feed[past]
        axis = self._growing.axis
        copy[(*(slice(None),) * axis, slice(step.before, step.total))] = state.part(axis, step.before, step.total)
        return copy

    def _rows(self, state: Array, count: int) -> Array:
        return state[(*(slice(None),) * self._growing.axis, slice(count))]


class _InPlace:
    """Caches in arrays of the caller, which a run reads and writes in place."""

    def __init__(self, held: _Held, growing: Growing, caches: Mapping[str, Array]) -> None:
        self._growing, self._caches, self._held = growing, caches, held
        self._places = {past: _place(array) for past, array in caches.items()}
        self._request: InferRequest = held.compiled.create_infer_request()
        self._request.set_state(caches)
        self.is_on_host = True

    def is_of(self, feed: Mapping[str, Array], step: _Step) -> bool:
        """Whether the caches of a run are in the same memory, and the model chooses the same for it."""
        return step.chosen == self._held.chosen and all(
            feed[past] is array or _place(feed[past]) == self._places[past] for past, array in self._caches.items()
        )

    def run(self, feed: Mapping[str, Array], step: _Step) -> Mapping[str, Any]:
        """One run: all outputs."""
        found = dict(self._request.infer(_inputs(feed, step, self._growing, self._held.room)))
        states = self._request.query_state(on_device=True)
        for past, array in self._caches.items():
            if states[past] is not array:  # it went to a device
                self.is_on_host, array[...] = False, np.asarray(states[past])
        return {**found, **{present: feed[past] for past, present in self._growing.caches.items()}}


class Bound:
    """The memory for outputs by name, and the caches among it that runs of a decoder share."""

    def __init__(self) -> None:
        self.targets: Mapping[str, Any] = {}
        self.text: _InPlace | None = None


def _inputs(feed: Mapping[str, Array], step: _Step, known: Growing, room: int) -> Mapping[str, Any]:
    """The inputs of the model with states that have room for so many tokens."""
    names = known.renamed
    given = {names.get(name, name): v for name, v in feed.items() if name not in known.caches and name not in known.flags}
    given[LENGTH] = np.array([step.total])
    if known.mask:
        mask = feed[known.mask]
        rest = np.zeros((step.batch, room - step.total), mask.dtype)
        given[names.get(known.mask, known.mask)] = np.concatenate([mask, rest] if known.counts else [rest, mask], axis=1)
    return given


def _place(array: Array) -> tuple[Any, ...]:
    """Where the elements of an array are: programs hand arrays through other libraries."""
    return array.ctypes.data, array.shape, array.strides


class _Lease:
    """Lives as long as any of the arrays that a run has returned, or that are views of them."""


class _Leased:
    """Memory of an array for numpy, which keeps this object while a view of it is alive."""

    def __init__(self, array: Array, lease: _Lease, interface: dict[str, Any]) -> None:
        self.__array_interface__ = interface
        self._kept = array, lease


def _leased(array: Array, lease: _Lease, place: tuple[Any, ...], is_read_only: bool) -> Array:
    """The part of an array that is at a place."""
    address, shape, strides = place
    data = {"version": 3, "typestr": array.dtype.str, "data": (address, is_read_only), "shape": shape, "strides": strides}
    found = np.asarray(_Leased(array, lease, data))
    return found if found.dtype is array.dtype else found.view(array.dtype)
