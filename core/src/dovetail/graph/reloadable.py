"""Memory of constants that can be given back to the system, because its content can be read again."""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.graph.graph import Graph

__all__ = ["ConstantReaders", "Reloadable", "aligned", "check_reloadable", "let_go", "owner", "reloadable"]


class Reloadable(ABC):
    """The owner of the memory of arrays: the `base` of what `np.asarray` makes of it, by `__array_interface__`."""

    @abstractmethod
    def let_go(self) -> None:
        """Give the memory back where that is possible; arrays in it keep their content, which is read again when needed."""

    @abstractmethod
    def check(self) -> None:
        """Raise `FormatError` if the content can no longer be read as it was."""

    @property
    def checked(self) -> object:
        """The object that `check` examines: of several with the same one, only one need be checked."""
        return self

    def aligned(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array in this memory, or one with its content at an address that any kernel takes; see the function `aligned`."""
        return array


def owner(array: NDArray[Any]) -> NDArray[Any]:
    """The array that owns the memory of one, or wraps what does: constants that are views of each other have the same."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array


def aligned(array: NDArray[Any]) -> NDArray[Any]:
    """A constant that kernels can read in place: if it is `Reloadable`, as weights in files are, a shared copy in memory."""
    return next((one.aligned(array) for one in _owners([array])), array)


def let_go(*arrays: NDArray[Any], still_read: Iterable[NDArray[Any]] = ()) -> None:
    """Give back the memory of constants that a device has copied into its own layout and does not read while a model runs.

    Nothing happens for memory that is not `Reloadable`, or has some of `still_read`. They may be read: that takes longer.
    """
    for one in {*_owners(arrays)} - {*_owners(still_read)}:
        one.let_go()


class ConstantReaders:
    """The nodes and outputs of a graph that read its constants in place, as far as is known.

    Memory that all of them have copied is given back, as `let_go` does it; constants may be views of each other.
    """

    def __init__(self, graph: Graph) -> None:
        self._constants = graph.constants
        self._owners = {name: id(owner(array)) for name, array in graph.constants.items()}
        reads = (*(node.reads for node in graph.nodes), graph.outputs)
        self._left = Counter(self._owners[name] for names in reads for name in names if name in self._owners)

    def copied(self, names: Iterable[str]) -> None:
        """A node has copied these inputs, each counted as often as it reads it; those that are not constants do not count."""
        for name in names:
            memory = self._owners.get(name)
            if memory is None:
                continue
            self._left[memory] -= 1
            if not self._left[memory]:
                let_go(self._constants[name])


def check_reloadable(arrays: Iterable[NDArray[Any]]) -> None:
    """Raise `FormatError` for arrays whose content can no longer be read as it was. For plans, and before pickling."""
    for one in reloadable(arrays):
        one.check()


def reloadable(arrays: Iterable[NDArray[Any]]) -> Sequence[Reloadable]:
    """The owners that `check_reloadable` checks for these arrays."""
    return tuple({one.checked: one for one in {*_owners(arrays)}}.values())


def _owners(arrays: Iterable[NDArray[Any]]) -> Iterable[Reloadable]:
    for array in arrays:
        wrapped: Any = owner(array).base
        if wrapped is not None and _is_reloadable(type(wrapped).__mro__):
            yield wrapped


@cache
def _is_reloadable(classes: tuple[type, ...]) -> bool:
    return Reloadable in classes  # to ask an abstract class about hundreds of objects in each plan takes six times as long
