"""Values that kernels make of constants, such as weights in another order, which the plans of a model share."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Generic, TypeVar
from weakref import WeakValueDictionary

from dovetail_cpu_numpy.launch import Array

__all__ = ["Shared"]

T = TypeVar("T")


class Shared(Generic[T]):
    """A value made of constants; `of` gives the same one for as long as it is in use."""

    __slots__ = ("__weakref__", "_sources", "value")

    def __init__(self, sources: Sequence[Array], value: T) -> None:
        self._sources = sources  # kept alive, so that their places in memory stay theirs
        self.value = value

    @classmethod
    def of(cls, sources: Sequence[Array], make: Callable[[], T], *how: Hashable) -> "Shared[T]":
        """That of arrays whose content never changes. `how` is what else decides about the result of `make`."""
        places = tuple([(one.ctypes.data, one.shape, one.strides, one.dtype.str) for one in sources])
        found: Shared[T] | None = _SHARED.get((how, places))
        if found is None:
            found = _SHARED[how, places] = cls(sources, make())
        return found


_SHARED: WeakValueDictionary[Hashable, Shared[Any]] = WeakValueDictionary()
