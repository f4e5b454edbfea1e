"""Constants in the layouts of primitives, shared by all executables of one compilation that need the same.

The plans of a model for several input shapes read the same weights, mostly in the same layout: bringing them there and keeping
them again for each plan would cost most of a new shape's time, and the memory of the model once more.
"""

import weakref
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from dovetail.dataclass import dataclass, field
from dovetail.device import owner
from dovetail.locks import Lock
from dovetail_cpu_onednn.binding import Memory, MemoryDesc
from dovetail_cpu_onednn.library import library

__all__ = ["Constant", "Referable", "SharedConstants"]

Array = NDArray[Any]
Repack = Callable[[Array], Array] | None


class Referable:
    """Lets objects with slots be referred to weakly."""

    __slots__ = ("__weakref__",)


@dataclass(frozen=True, slots=True, eq=False)
class Constant(Referable):
    """A constant as a primitive reads it, `offset` bytes behind the beginning of the array, in layout `dst`.

    It was made of `source`, which has layout `src` in C order, once repacked.
    """

    source: Array
    src: MemoryDesc
    dst: MemoryDesc
    repack: Repack
    array: Array
    offset: int = 0
    _memory: Memory | None = field(default=None, init=False)

    @property
    def memory(self) -> Memory:
        """The memory object, made for the first request that is bound to it."""
        found = self._memory
        if found is None:
            found = library().memory(self.dst, int(self.array.ctypes.data), self.offset)
            object.__setattr__(self, "_memory", found)
        return found

    def is_of(self, src: MemoryDesc, dst: MemoryDesc, repack: Repack, offset: int = 0) -> bool:
        """Whether another constant from the same source would be the same."""
        equal = library().equal
        return self.repack == repack and self.offset == offset and equal(self.src, src) and equal(self.dst, dst)


class SharedConstants:
    """Constants by address and layouts, as long as some executable uses them. Threads may share it.

    Not for more than one compilation: between two of them a caller may write to the arrays that a model took its constants from.
    """

    def __init__(self) -> None:
        self._entries: dict[int, list[weakref.ref[Constant]]] = {}
        self._lock = Lock()

    def find(self, source: Array, src: MemoryDesc, dst: MemoryDesc, repack: Repack = None) -> Constant | None:
        """The constant of this source in layout `dst`; None where there is none."""
        with self._lock:
            entries = [*self._entries.get(source.ctypes.data, ())]
        known = [found for entry in entries if (found := entry()) is not None and found.is_of(src, dst, repack)]
        # The strides are those of NumPy: a transposed view is at the address of what it shows.
        same = (c for c in known if c.source.strides == source.strides and owner(c.source) is owner(source))
        return next(same, None)

    def add(self, constant: Constant) -> None:
        """Share a constant with executables that are made from now on."""
        address = constant.source.ctypes.data
        with self._lock:
            self._entries.setdefault(address, []).append(weakref.ref(constant, self._forgetter(address)))

    def _forgetter(self, address: int) -> Callable[[object], None]:
        entries = self._entries

        def forget(_: object) -> None:
            # Without the lock, which the thread may hold: replacing the list is one step for other threads.
            left = [entry for entry in entries.get(address, ()) if entry() is not None]
            if left:
                entries[address] = left
            else:
                entries.pop(address, None)

        return forget

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))
