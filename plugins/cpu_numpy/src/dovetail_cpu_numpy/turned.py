"""Constant matrices in the other order, which the plans of a model share."""

from collections.abc import Hashable
from weakref import WeakValueDictionary

import numpy as np

from dovetail_cpu_numpy.launch import Array

__all__ = ["Turned"]


class Turned:
    """A contiguous copy of a constant with its last two axes exchanged; `of` gives the same one for as long as it is in use."""

    __slots__ = ("__weakref__", "_source", "array")

    def __init__(self, source: Array) -> None:
        self._source = source  # kept alive, so that its place in memory stays its own
        self.array: Array = np.ascontiguousarray(source.swapaxes(-1, -2))

    @classmethod
    def of(cls, source: Array) -> "Turned":
        """That of an array whose content never changes."""
        place = source.ctypes.data, source.shape, source.strides, source.dtype.str
        found = _TURNED.get(place)
        if found is None:
            found = _TURNED[place] = cls(source)
        return found


_TURNED: WeakValueDictionary[Hashable, Turned] = WeakValueDictionary()
