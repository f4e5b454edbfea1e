"""Host memory for the values of requests, used again by later requests."""

import weakref
from collections import deque
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Arenas"]


class Arenas:
    """Host memory for requests, shared by all plans of a model: a new request takes that of one that ended, if the size is near.

    A system clears new memory page by page when it is touched: for images that is a good part of a first run. At most one
    block waits here.
    """

    ALIGNMENT = 64
    """Bytes of a line of a CPU's cache, and of its longest vectors."""
    SMALLEST = 1 << 20

    def __init__(self) -> None:
        self._spare: deque[NDArray[np.uint8]] = deque(maxlen=1)

    def take(self, nbytes: int) -> NDArray[np.uint8]:
        """So many bytes, not set to anything, from an address that is a multiple of `ALIGNMENT`. Raises `MemoryError`.

        From `SMALLEST` on they come back when the last array in them is gone, results that a caller holds among them.
        """
        needed = nbytes + self.ALIGNMENT
        if nbytes < self.SMALLEST:
            return self._aligned(np.empty(needed, np.uint8), nbytes)
        try:
            block = self._spare.pop()
        except IndexError:
            block = np.empty(0, np.uint8)
        if not needed <= block.size <= 4 * needed:
            del block  # before there is another
            # Pages that are never touched cost nothing, and plans for somewhat larger shapes find room.
            block = np.empty(1 << needed.bit_length(), np.uint8)
        lent = _Lent(block)
        weakref.finalize(lent, self._spare.append, block).atexit = False
        return self._aligned(np.asarray(lent), nbytes)

    def clear(self) -> None:
        """Free what waits."""
        self._spare.clear()

    def _aligned(self, memory: NDArray[np.uint8], nbytes: int) -> NDArray[np.uint8]:
        start = -memory.ctypes.data % self.ALIGNMENT
        return memory[start : start + nbytes]


class _Lent:
    """Owns the memory of a block as long as arrays are in it."""

    def __init__(self, block: NDArray[np.uint8]) -> None:
        self.__array_interface__: dict[str, Any] = block.__array_interface__
