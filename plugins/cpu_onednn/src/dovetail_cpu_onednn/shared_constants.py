"""Constants in the layouts of primitives, shared by all executables of one compilation that need the same.

The plans of a model for several input shapes read the same weights, mostly in the same layout: bringing them there and keeping
them again for each plan would cost most of a new shape's time, and the memory of the model once more.
"""

import threading
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dovetail.dataclass import dataclass
from dovetail_cpu_onednn.binding import MemoryDesc
from dovetail_cpu_onednn.library import library

__all__ = ["SharedConstants", "owner"]

Array = NDArray[Any]
Repack = Callable[[Array], Array] | None


@dataclass(frozen=True)
class _Entry:
    """A constant, by its owner, strides and layout, and its copy in another layout. Neither is kept alive.

    The strides are those of NumPy: a transposed view is at the address of what it shows. `repack` was applied before.
    """

    owner: "weakref.ref[Array]"
    strides: tuple[int, ...]
    src: MemoryDesc
    dst: MemoryDesc
    repack: Repack
    copy: "weakref.ref[Array]"


class SharedConstants:
    """Copies of constants by address and layouts, as long as some executable uses them. Threads may share it.

    Not for more than one compilation: between two of them a caller may write to the arrays that a model took its constants from.
    """

    def __init__(self) -> None:
        self._entries: dict[int, list[_Entry]] = {}
        self._lock = threading.Lock()

    def find(self, constant: Array, src: MemoryDesc, dst: MemoryDesc, repack: Repack = None) -> Array | None:
        """The copy in layout `dst` of a constant, which repacked has layout `src` in C order; None where there is none."""
        equal, holder = library().equal, owner(constant)
        with self._lock:
            entries = [*self._entries.get(constant.ctypes.data, ())]
        for entry in entries:
            # Another array may have come to the address of one that was freed.
            same = entry.owner() is holder and entry.strides == constant.strides
            if same and entry.repack == repack and equal(entry.src, src) and equal(entry.dst, dst):
                copy: Array | None = entry.copy()
                return copy
        return None

    def add(self, constant: Array, src: MemoryDesc, dst: MemoryDesc, copy: Array, repack: Repack = None) -> None:
        """Share a copy with executables that are made from now on."""
        address = constant.ctypes.data
        kept = weakref.ref(copy, self._forgetter(address))
        entry = _Entry(weakref.ref(owner(constant)), constant.strides, src, dst, repack, kept)
        with self._lock:
            self._entries.setdefault(address, []).append(entry)

    def _forgetter(self, address: int) -> Callable[[object], None]:
        entries = self._entries

        def forget(_: object) -> None:
            # Without the lock, which the thread may hold: replacing the list is one step for other threads.
            left = [entry for entry in entries.get(address, ()) if entry.copy() is not None]
            if left:
                entries[address] = left
            else:
                entries.pop(address, None)

        return forget

    def __len__(self) -> int:
        return sum(map(len, self._entries.values()))


def owner(array: Array) -> Array:
    """The array that owns the memory, or wraps what does."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    return array
