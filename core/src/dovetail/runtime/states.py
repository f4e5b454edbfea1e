"""The states of one request: in arrays of the host, or where a device keeps them."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.device_array import DeviceArray
from dovetail.errors import InferError, InputError
from dovetail.graph.graph import Graph
from dovetail.graph.model import Model
from dovetail.graph.types import ANONYMOUS, TensorType

__all__ = ["Plans", "RequestStates"]


class Plans(Protocol):
    """A compiled model, as far as states know it."""

    @property
    def model(self) -> Model:
        """The model."""


class RequestStates:
    """The values that the inputs of a graph's states have in the next run: zeros before the first one.

    A state with open dimensions takes the shape of the output that continues it. Before the first run its dimensions have the
    sizes of those with the same names in the other inputs, and the others are 0.
    """

    def __init__(self, graph: Graph) -> None:
        self._types = {name: graph.types[name] for name in graph.states}
        self._given = [graph.types[name].shape or () for name in graph.inputs if name not in graph.states]
        self._outputs = dict(graph.states)
        self.continued = frozenset(self._outputs.values())
        """The positions of the outputs that continue states."""
        self._held: dict[str, Any] = {}

    def inputs(self, plans: Any, arrays: Sequence[Any]) -> tuple[Any, Sequence[Any]]:
        """The plans for a run of these, with the inputs that they take, from those of the caller."""
        states, given = self.values(arrays), iter(arrays)
        return plans, [states[n] if n in states else next(given) for n in plans.model.graph.inputs]

    def values(self, inputs: Sequence[Any] = ()) -> Mapping[str, Any]:
        """Arrays, or `DeviceArray`s, by the names of the inputs. `inputs`: the others, of the run that is about to begin."""
        if len(self._held) < len(self._types):
            self._held |= {n: _empty(t, {}) for n, t in self._types.items() if n not in self._held and t.is_static}
        if len(self._held) == len(self._types):
            return self._held
        pairs = [
            pair for shape, value in zip(self._given, inputs, strict=False) for pair in zip(shape, np.shape(value), strict=False)
        ]
        sizes = {name: size for name, size in pairs if isinstance(name, str) and name not in ANONYMOUS}
        return {n: self._held[n] if n in self._held else _empty(t, sizes) for n, t in self._types.items()}

    def on_host(self) -> Mapping[str, NDArray[Any]]:
        """The arrays of the host that the next run reads; those of a device are brought."""
        self._held = {name: np.asarray(state) for name, state in self._held.items()}
        return dict(self.values())

    def use(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Hold states in these arrays. Raises `InputError` for unknown names, and for arrays that cannot be read in place."""
        for name, array in arrays.items():
            wanted = self._types.get(name)
            if wanted is None:
                raise InputError(f"{name!r} is not a state", hint=f"accepted: {', '.join(map(repr, self._types))}")
            if type(array) is not np.ndarray or (array.dtype, array.shape) != (wanted.dtype.numpy, wanted.shape):
                found = f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else type(array).__name__
                raise InputError(f"the state {name!r} is {wanted}, the array {found}", hint="accepted: an array of that type")
            if not array.flags.carray:
                raise InputError(
                    f"the array for the state {name!r} has gaps, is read-only or is not aligned",
                    hint="accepted: a writeable C-contiguous array",
                )
        self._held.update(arrays)

    def reset(self) -> None:
        """Set all to zeros; those on a device, and of open shapes, are made anew."""
        self._held = {n: state for n, state in self._held.items() if isinstance(state, np.ndarray) and self._types[n].is_static}
        for array in self._held.values():
            array[...] = 0

    def take(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs of a run without those that continue states. Raises `InferError` for one of another type."""
        outputs = self._apart(outputs)
        for name, index in self._outputs.items():
            state, found = self._held.get(name), outputs[index]
            if found is state:
                continue
            self._check(name, found)
            if isinstance(found, DeviceArray) and not isinstance(found.held, np.ndarray):
                self._held[name] = found
            elif isinstance(state, np.ndarray) and state.shape == found.shape:
                np.copyto(state, found)  # nothing where it is the same memory
            else:
                self._held[name] = np.array(found)
        return [array for index, array in enumerate(outputs) if index not in self.continued]

    def _apart(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs; those in arrays of states that others are to be copied into are copies: a model may return a state as it
        was, or continue another one by it.
        """
        held = [(self._held.get(name), outputs[index]) for name, index in self._outputs.items()]
        # Most devices have written into the array of the state itself.
        written = [s for s, found in held if type(s) is np.ndarray and found is not s and not _may_share(s, found)]
        if not written:
            return outputs
        roots = {id(_root(state)) for state in written}  # so that few of many outputs and many states are compared
        return [
            value.copy()
            if type(value) is np.ndarray and id(_root(value)) in roots and any(np.may_share_memory(value, s) for s in written)
            else value
            for value in outputs
        ]

    def _check(self, name: str, found: Any) -> None:
        wanted, shape = self._types[name], self._types[name].shape or ()
        fits = len(found.shape) == len(shape) and all(
            d == w or not isinstance(w, int) for d, w in zip(found.shape, shape, strict=True)
        )
        if found.dtype != wanted.dtype.numpy or not fits:
            written = f"{found.dtype}{list(found.shape)}"
            raise InferError(f"the state {name!r} is {wanted}, the output that continues it {written}")

    def move(self) -> None:
        """Copy all into arrays that nobody else knows."""
        self._held = {name: np.array(state) for name, state in self._held.items()}

    def clear(self) -> None:
        """Free all."""
        self._held = {}


def _may_share(state: NDArray[Any], found: Any) -> bool:
    return isinstance(found, np.ndarray) and np.may_share_memory(state, found)


def _root(array: NDArray[Any]) -> NDArray[Any]:
    """The array that owns the memory, as far as it is known."""
    while type(array.base) is np.ndarray:
        array = array.base
    return array


def _empty(tensor: TensorType, sizes: Mapping[str, int]) -> NDArray[Any]:
    shape = [d if isinstance(d, int) else sizes.get(d, 0) if d else 0 for d in tensor.shape or ()]
    return np.zeros(shape, tensor.dtype.numpy)
