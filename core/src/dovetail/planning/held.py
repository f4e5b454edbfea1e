"""Bytes that values on the host hold, so that loops, scans, sequences and strings cannot outgrow the limit."""

import weakref
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.errors import OutOfMemory
from dovetail.graph import Node
from dovetail.graph.types import array_bytes

__all__ = ["HeldBytes", "check_bytes", "check_held", "holds_arrays"]

_SHARE = 1000
"""The part of a limit up to which arrays are only counted."""


def holds_arrays(values: list[Any]) -> bool:
    """Whether one of them is an array: of many maps only the type is looked at."""
    return any(issubclass(kind, np.ndarray) for kind in set(map(type, values)))


def check_bytes(node: Node, nbytes: int, limit: int) -> None:
    """Raise `OutOfMemory` naming the node for values that exceed the limit."""
    if nbytes > limit:
        raise OutOfMemory(
            f"node {node} holds values of {nbytes:,} bytes; the limit is {limit:,}",
            hint="raise it with the property MEMORY_LIMIT (bytes) if the machine has that much",
        )


def check_held(node: Node, values: Sequence[Any], limit: int) -> None:
    """Raise `OutOfMemory` naming the node when the arrays among the values, and in lists, exceed the limit together."""
    if sum(map(array_bytes, _arrays(values))) > limit:
        HeldBytes(node, limit).add(values)  # counts an array once


def _arrays(values: Iterable[Any]) -> Iterator[NDArray[Any]]:
    for value in values:
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list) and holds_arrays(value):
            yield from (item for item in value if isinstance(item, np.ndarray))


class HeldBytes:
    """The bytes of the arrays given to `add` that are still alive: what an operator drops no longer counts.

    The first of them, a small part of the limit, count as if they all lived: most loops never get beyond, and to follow an array
    takes as long as a small node.
    """

    def __init__(self, node: Node, limit: int) -> None:
        self._node, self._limit = node, limit
        self._given: dict[int, weakref.ref[Any]] = {}  # by identity, which an array may have from one that is dead
        self._most = self._first = 0
        self._few = limit // _SHARE

    def add(self, values: Sequence[Any]) -> None:
        """Count arrays, and those in lists. Raises `OutOfMemory` naming the node when together they exceed the limit."""
        if not self._given:
            first = self._first
            for value in values:
                if type(value) is not np.ndarray or value.dtype.kind == "O":
                    break
                first += value.nbytes
            else:
                if first <= self._few:
                    self._most = self._first = first
                    return
        given = self._given
        for value in values:
            for item in value if isinstance(value, list) and holds_arrays(value) else (value,):
                known = given.get(id(item))
                if (known is None or known() is not item) and isinstance(item, np.ndarray):
                    given[id(item)] = weakref.ref(item)
                    self._most += array_bytes(item)
        if self._most > self._limit:  # dead ones included, which are looked for only then
            self._recount()

    def _recount(self) -> None:
        alive = [item for known in self._given.values() if (item := known()) is not None]
        self._given = {id(item): weakref.ref(item) for item in alive}
        self._most = self._first + sum(map(array_bytes, alive))
        check_bytes(self._node, self._most, self._limit)
