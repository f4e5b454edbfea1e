"""The states of a request for a decoder whose states grow: they have room for more tokens, so that a token needs no new plan."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail import _log
from dovetail.dataclass import dataclass
from dovetail.errors import DovetailError, UsageError
from dovetail.graph.dtype import DType
from dovetail.graph.growth import LENGTH, Growth
from dovetail.graph.model import Model
from dovetail.graph.rewriting import drop_dead_nodes, rename_reads
from dovetail.graph.types import TensorType
from dovetail.names import printable
from dovetail.planning.plan import Shapes
from dovetail.protocol import Protocol
from dovetail.runtime.states import Plans, RequestStates

__all__ = ["GrowingStates", "may_grow", "with_room"]

_ROOM = 256
"""The fewest tokens for which states have room; they get twice as many when these are used up."""


class _GrowingPlans(Plans, Protocol):
    """A compiled model for its growing states."""

    def with_room(self, texts: int, room: int) -> "_GrowingPlans":
        """The same for the model whose states have room for so many tokens of so many texts."""

    def plan(self, shapes: Shapes) -> Any:
        """Plan for these shapes."""


@dataclass(frozen=True)
class _Step:
    """A run: the texts, the tokens with those of this run, and for each text the one that it continues; None for its own."""

    texts: int
    total: int
    order: NDArray[Any] | None


class GrowingStates(RequestStates):
    """As `RequestStates`, for the model or for one `with_room`, whose plans `inputs` chooses for each run.

    A run that does not continue the texts, or that the model with room refuses, is one of the model itself.
    """

    def __init__(self, compiled: _GrowingPlans) -> None:
        super().__init__(compiled.model.graph)
        self._compiled = compiled
        self._names = tuple(compiled.model.inputs)
        assert compiled.model.growth is not None  # else there are plain states
        self._growth: Growth = compiled.model.growth
        self._used = self._room = 0
        self._plans: Plans = compiled
        self._step: _Step | None = None
        self._refused: set[int] = set()

    def inputs(self, plans: Plans, arrays: Sequence[Any]) -> tuple[Plans, Sequence[Any]]:
        """As of the base."""
        given = dict(zip(self._names, arrays, strict=True))
        self._step = step = self._next(given)
        if step is None or not self._has_room(step, given):
            self._step = None
            self._leave()
            return super().inputs(self._compiled, arrays)
        return self._plans, self._wanted(self._plans, step, given, self.values())

    def on_host(self) -> Mapping[str, NDArray[Any]]:
        """As of the base: the rows in use."""
        found = super().on_host()
        return {name: self._rows(state) for name, state in found.items()} if self._room else found

    def use(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Raise `UsageError`: arrays of the caller have no room for further tokens."""
        raise UsageError("the states of this model grow", hint="write into the arrays of query_state()")

    def reset(self) -> None:
        """As of the base."""
        self._hold(self._compiled, 0)
        self._held = {}

    def take(self, outputs: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        """As of the base."""
        found = super().take(outputs, on_device)
        if self._step is not None:
            self._used = self._step.total
        return found

    @property
    def _length(self) -> int:
        """The tokens so far."""
        states = iter(self._held.values())
        return self._used if self._room else next((state.shape[self._growth.axis] for state in states), 0)

    def _next(self, given: Mapping[str, Any]) -> _Step | None:
        """The run, if it continues the texts."""
        growth, before = self._growth, self._length
        tokens, mask, order = given[growth.tokens], given.get(growth.mask), given.get(growth.order)
        if not all(one is None or type(one) is np.ndarray for one in (tokens, mask, order)):
            return None
        texts, total = tokens.shape[0], before + tokens.shape[1]
        if total == before or not texts or (mask is not None and mask.shape != (texts, total)):
            return None
        if order is None or not before:
            fits = not before or self._texts == texts
            return _Step(texts, total, None) if fits and (order is None or order.shape == (texts,)) else None
        chosen = order.tolist()
        if len(chosen) != texts or not all(0 <= one < self._texts for one in chosen):
            return None
        return _Step(texts, total, None if chosen == [*range(self._texts)] else order)

    @property
    def _texts(self) -> int:
        return next((state.shape[0] for state in self._held.values()), 0)

    def _has_room(self, step: _Step, given: Mapping[str, Any]) -> bool:
        """Whether there is a model with room for the run; the states are those of it then, in their order."""
        if step.texts in self._refused:
            return False
        if self._room >= step.total and self._texts in (0, step.texts):
            if step.order is not None:
                for state in self.on_host().values():
                    state[...] = state[step.order]
            return True
        room = max(self._room, _ROOM)
        while room < step.total:
            room *= 2
        try:
            plans = self._compiled.with_room(step.texts, room)
            states = {name: np.zeros(t.dims, t.dtype.numpy) for name, t in _states(plans.model).items()}
            plans.plan(tuple(np.shape(one) for one in self._wanted(plans, step, given, states)))
        except DovetailError as error:
            self._refused.add(step.texts)
            what = "%s: each length of the states is planned anew, because %s"
            _log.info(what, printable(self._compiled.model.source), printable(error.message))
            return False
        before, old = self._length, self.on_host() if self._held else {}
        self._hold(plans, room)
        self._used = before
        for name, rows in old.items():
            if before:
                self._rows(states[name])[...] = rows if step.order is None else rows[step.order]
        self._held = dict(states)
        return True

    def _hold(self, plans: Plans, room: int) -> None:
        self._plans, self._room, self._used = plans, room, 0
        self._types = _states(plans.model)

    def _leave(self) -> None:
        """Let the states be those of the model itself."""
        if self._room:
            held = {name: np.array(state) for name, state in self.on_host().items()}
            self._hold(self._compiled, 0)
            self._held = held

    def _wanted(self, plans: Plans, step: _Step, given: Mapping[str, Any], states: Mapping[str, Any]) -> list[Any]:
        """The inputs of the model with room."""
        known = {**given, **states, LENGTH: np.array([step.total], np.int64)}
        mask = given.get(self._growth.mask)
        if mask is not None:
            known[self._growth.mask] = whole = np.zeros(plans.model.graph.types[self._growth.mask].dims, mask.dtype)
            whole[:, whole.shape[1] - step.total :] = mask
        return [known[name] for name in plans.model.graph.inputs]

    def _rows(self, state: NDArray[Any]) -> NDArray[Any]:
        found: NDArray[Any] = state[(*(slice(None),) * self._growth.axis, slice(self._used))]
        return found


def _states(model: Model) -> dict[str, TensorType]:
    return {name: model.graph.types[name] for name in model.graph.states}


def may_grow(model: Model) -> bool:
    """Whether the states of the model are as open as it declares that they grow."""
    growth = model.growth
    types = () if growth is None else [(model.graph.types[name].shape or (), growth.axis) for name in growth.states]
    return bool(types) and all(not isinstance(size, int) for shape, axis in types for size in (shape[0], shape[axis]))


def with_room(model: Model, texts: int, room: int) -> Model:
    """The model with states of one size, as the pass `hold_caches` takes it: with an input `cache_length`."""
    growth = model.growth
    assert growth is not None  # the caller has asked `may_grow`
    shapes: dict[str, Sequence[Any]] = {growth.mask: (texts, room)} if growth.mask else {}
    for name in growth.states:
        shape = [*(model.graph.types[name].shape or ())]
        shape[0], shape[growth.axis] = texts, room
        shapes[name] = shape
    graph = model.reshape(shapes).graph
    places = {index: growth.states[name].written for name, index in graph.states.items()}
    read = {grown.read: name for name, grown in growth.states.items()}
    graph = graph.replace(
        nodes=tuple(rename_reads(node, read) for node in graph.nodes),
        outputs=tuple(places.get(index, name) for index, name in enumerate(graph.outputs)),
        inputs=(*(name for name in graph.inputs if name != growth.order), LENGTH),
        types={**graph.types, LENGTH: TensorType(DType.INT64, (1,))},
    )
    return dataclasses.replace(model, graph=drop_dead_nodes(graph), growth=None)
