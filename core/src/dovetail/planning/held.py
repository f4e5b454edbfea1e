"""Bytes that values on the host hold, so that loops, scans, sequences and strings cannot outgrow the limit."""

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from dovetail.errors import OutOfMemory
from dovetail.graph import Node
from dovetail.graph.types import array_bytes

__all__ = ["HeldBytes", "holds_arrays"]


def holds_arrays(values: list[Any]) -> bool:
    """Whether one of them is an array: of many maps only the type is looked at."""
    return any(issubclass(kind, np.ndarray) for kind in set(map(type, values)))


class _Counted(weakref.ref[Any]):
    __slots__ = ("key", "size")

    key: int
    size: int


class HeldBytes:
    """The bytes of the arrays given to `add` that are still alive: what an operator drops no longer counts."""

    def __init__(self, node: Node, limit: int) -> None:
        self._node, self._limit = node, limit
        self._alive: dict[int, _Counted] = {}
        self._dead: list[_Counted] = []
        self._total = 0

    def add(self, values: Iterable[Any]) -> None:
        """Count arrays, and those in lists. Raises `OutOfMemory` naming the node when together they exceed the limit."""
        while self._dead:
            dead = self._dead.pop()
            del self._alive[dead.key]
            self._total -= dead.size
        for value in values:
            for item in (value if holds_arrays(value) else ()) if isinstance(value, list) else (value,):
                if isinstance(item, np.ndarray) and id(item) not in self._alive:
                    self._count(item)
        if self._total > self._limit:
            raise OutOfMemory(
                f"node {self._node} holds values of {self._total:,} bytes; the limit is {self._limit:,}",
                hint="raise it with the property MEMORY_LIMIT (bytes) if the machine has that much",
            )

    def _count(self, array: np.ndarray[Any, Any]) -> None:
        # No function in Python: an interrupt that arrived while it ran would be lost, as any exception of a finalizer is.
        counted = _Counted(array, self._dead.append)
        counted.key, counted.size = id(array), array_bytes(array)
        self._alive[counted.key] = counted
        self._total += counted.size
