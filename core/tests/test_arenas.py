"""Memory of requests that ended is used again."""

import numpy as np
from numpy.typing import NDArray

from dovetail.device import Arenas

SIZE = Arenas.SMALLEST


def address(array: NDArray[np.uint8]) -> int:
    return int(array.ctypes.data)


def test_an_arena_comes_back_when_its_last_array_is_gone() -> None:
    arenas = Arenas()
    first = arenas.take(3 * SIZE)
    where, result = address(first), first[7:9]
    assert where % Arenas.ALIGNMENT == 0
    assert first.size == 3 * SIZE
    del first
    other = arenas.take(3 * SIZE)
    assert address(other) != where, "a caller holds a result"
    del result
    assert address(arenas.take(2 * SIZE)) == where, "near enough"


def test_an_arena_of_quite_another_size_is_not_taken() -> None:
    arenas = Arenas()
    larger = arenas.take(64 * SIZE)
    del larger
    smaller = arenas.take(2 * SIZE)
    assert smaller.size == 2 * SIZE
    block = smaller.base
    while isinstance(block, np.ndarray) and block.base is not None:
        block = block.base
    assert block is not None
    assert block.__array_interface__["shape"][0] < 64 * SIZE
    arenas.clear()


def test_small_memory_is_fresh_and_aligned() -> None:
    arenas = Arenas()
    where = address(arenas.take(SIZE))
    small = arenas.take(SIZE // 8)
    assert small.size == SIZE // 8
    assert address(small) % Arenas.ALIGNMENT == 0
    assert not where <= address(small) < where + SIZE
