"""Arrays that passes compute from constants, shared by the plans of one model for several shapes."""

import weakref
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from numpy.typing import NDArray

__all__ = ["DerivedConstants"]

Array = NDArray[Any]


class DerivedConstants:
    """Arrays by the constants that they were computed from, as long as some plan uses them. Threads may share it.

    Plans for several shapes then read the same weights, which devices bring into their layouts once.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, tuple[weakref.ref[Array], ...]] = {}

    def get(self, key: Hashable, sources: Sequence[Array], make: Callable[[], Array]) -> Array:
        """The array that `make` gives for these very sources; `key` has everything else on which it depends."""
        whole, found = (key, *map(id, sources)), self._found
        first, *others = (reference() for reference in found.get(whole, (lambda: None,)))
        # Another array may have got the id of one that was freed.
        if first is not None and all(a is b for a, b in zip(others, sources, strict=True)):
            return first
        made = make()
        found[whole] = (weakref.ref(made, lambda _: found.pop(whole, None)), *map(weakref.ref, sources))
        return made
