"""The states of one request: in arrays of the host, or where a device keeps them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.devices.device_array import DeviceArray
from dovetail.errors import InferError
from dovetail.graph.graph import Graph

__all__ = ["RequestStates"]


class RequestStates:
    """The values that the inputs of a graph's states have in the next run: zeros before the first one."""

    def __init__(self, graph: Graph) -> None:
        self._types = {name: graph.types[name] for name in graph.states}
        self._outputs = dict(graph.states)
        self.continued = frozenset(self._outputs.values())
        """The positions of the outputs that continue states."""
        self._held: dict[str, Any] = {}

    def values(self) -> Mapping[str, Any]:
        """Arrays, or `DeviceArray`s, by the names of the inputs."""
        if len(self._held) < len(self._types):
            self._held |= {n: np.zeros(t.dims, t.dtype.numpy) for n, t in self._types.items() if n not in self._held}
        return self._held

    def on_host(self) -> Mapping[str, NDArray[Any]]:
        """The arrays of the host that the next run reads; those of a device are brought."""
        self._held = {name: np.asarray(state) for name, state in self.values().items()}
        return dict(self._held)

    def reset(self) -> None:
        """Set all to zeros; those on a device are made anew."""
        self._held = {name: state for name, state in self._held.items() if isinstance(state, np.ndarray)}
        for array in self._held.values():
            array[...] = 0

    def take(self, outputs: Sequence[Any]) -> Sequence[Any]:
        """The outputs of a run without those that continue states. Raises `InferError` for one of another type."""
        for name, index in self._outputs.items():
            state, found = self._held[name], outputs[index]
            if found is state:
                continue
            if (found.shape, found.dtype) != (state.shape, state.dtype):
                kinds = [f"{one.dtype}{list(one.shape)}" for one in (state, found)]
                raise InferError(f"the state {name!r} is {kinds[0]}, the output that continues it {kinds[1]}")
            if isinstance(found, DeviceArray) and not isinstance(found.held, np.ndarray):
                self._held[name] = found
            elif isinstance(state, DeviceArray):
                self._held[name] = np.array(found)
            else:
                np.copyto(state, found)  # nothing where it is the same memory
        return [array for index, array in enumerate(outputs) if index not in self.continued]

    def move(self) -> None:
        """Copy all into arrays that nobody else knows."""
        self._held = {name: np.array(state) for name, state in self._held.items()}

    def clear(self) -> None:
        """Free all."""
        self._held = {}
