"""The states of one request: in arrays of the host, or where a device keeps them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.device_array import DeviceArray
from dovetail.errors import InferError, InputError
from dovetail.graph.graph import Graph
from dovetail.graph.model import Model
from dovetail.graph.reloadable import owner
from dovetail.graph.types import ANONYMOUS, TensorType
from dovetail.protocol import Protocol

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

    def take(self, outputs: Sequence[Any], on_device: bool = False) -> Sequence[Any]:
        """The outputs of a run without those that continue states, copied where states have their memory on a device.

        Raises `InferError` for a state of another type.
        """
        moved = {name: index for name, index in self._outputs.items() if outputs[index] is not self._held.get(name)}
        if moved:
            for name, index in moved.items():
                self._check(name, outputs[index])
            outputs = self._apart(moved, outputs)
            for name, index in moved.items():
                self._move_in(name, outputs[index])
        results = [array for index, array in enumerate(outputs) if index not in self.continued]
        for number, found in enumerate(results):
            if type(found) is DeviceArray and any(found is state for state in self._held.values()):
                copy = np.asarray(found)
                results[number] = DeviceArray.on_host(copy) if on_device else copy
        return results

    def _move_in(self, name: str, found: Any) -> None:
        state = self._held.get(name)
        if isinstance(found, DeviceArray) and not isinstance(found.held, np.ndarray):
            # A device may overwrite what one state holds; each has memory of its own.
            is_shared = any(found is other for other in self._held.values())
            self._held[name] = np.asarray(found) if is_shared else found
        elif isinstance(state, np.ndarray) and state.shape == found.shape:
            np.copyto(state, found)  # nothing where it is the same memory
        else:
            self._held[name] = np.array(found)

    def _apart(self, moved: Mapping[str, int], outputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs, copied where they are in the memory of a state that another output overwrites.

        A graph may hand on the value that a state had: as a result, or to another state, as in a line of delays.
        """
        written: dict[int, list[int]] = {}
        for name, index in moved.items():
            state = self._held.get(name)
            if isinstance(state, np.ndarray) and state.shape == outputs[index].shape:
                written.setdefault(id(owner(state)), []).append(index)
        return [_copied(value, number, written) for number, value in enumerate(outputs)] if written else outputs

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


def _copied(value: Any, number: int, written: Mapping[int, Sequence[int]]) -> Any:
    """The output of this number; a copy of one that is in memory into which another output is written."""
    array = value.held if isinstance(value, DeviceArray) else value
    writers = written.get(id(owner(array)), ()) if isinstance(array, np.ndarray) else ()
    if all(writer == number for writer in writers):
        return value
    return DeviceArray.on_host(np.array(array)) if isinstance(value, DeviceArray) else np.array(array)


def _empty(tensor: TensorType, sizes: Mapping[str, int]) -> NDArray[Any]:
    shape = [d if isinstance(d, int) else sizes.get(d, 0) if d else 0 for d in tensor.shape or ()]
    return np.zeros(shape, tensor.dtype.numpy)
