"""Allocates buffers, with guard bytes on both sides to find bugs in kernels."""

import mmap
from typing import Any

import numpy as np
import pyopencl as cl
from numpy.typing import DTypeLike, NDArray

from dovetail.device import Arenas, OutOfMemory
from dovetail_gpu_opencl.failures import translated

__all__ = ["ALIGNMENT", "Buffers", "GuardedBuffers", "aligned_empty", "pinned"]

Bytes = NDArray[np.uint8]

ALIGNMENT = Arenas.ALIGNMENT
"""Bytes: a cache line, and the widest vector of current CPUs."""

LARGE = 1 << 17
"""Bytes from which on weights get memory of their own from the system."""


class Buffers:
    """The buffers of one owner, a request or an executable, freed with it.

    On a CPU they are allocated as memory of the host: PoCL allocates others when they are first used, and ends the process
    where that fails. With `unified_memory` kernels on a CPU read aligned arrays that nobody writes where they are.
    """

    def __init__(self, context: Any, largest: int, *, on_cpu: bool, unified_memory: bool = False) -> None:
        self._context = context
        self._largest = largest
        self.reads_host = on_cpu and unified_memory
        self._where = cl.mem_flags.ALLOC_HOST_PTR if on_cpu else 0

    def empty(self, nbytes: int, what: str) -> Any:
        """A buffer that kernels read and write; `what` names it in errors. Raises `OutOfMemory`."""
        if nbytes > self._largest:
            raise OutOfMemory(f"{what}: {nbytes} bytes are needed; the device's largest buffer has {self._largest}")
        with translated(f"allocating {nbytes} bytes for {what}"):
            return self._make(nbytes)

    def within(self, memory: Bytes, what: str) -> Any:
        """A buffer where this memory of the host is, which it keeps alive. Raises `OutOfMemory`."""
        if memory.nbytes > self._largest:
            raise OutOfMemory(f"{what}: {memory.nbytes} bytes are needed; the device's largest buffer has {self._largest}")
        with translated(f"allocating {memory.nbytes} bytes for {what}"):
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=memory)

    def holding(self, array: NDArray[Any], what: str, *, written: bool = False) -> Any:
        """A buffer with the bytes of a C-contiguous array, only read unless `written`. Raises `OutOfMemory`."""
        with translated(f"uploading {array.nbytes} bytes of {what}"):
            return self._copy_of(array, written)

    def zeros(self, nbytes: int, what: str) -> Any:
        """A buffer of zeros that kernels read and write. On a CPU its memory is taken when it is first written."""
        if not self.reads_host or nbytes < LARGE:
            return self.holding(np.zeros(nbytes, np.uint8), what, written=True)
        with translated(f"allocating {nbytes} bytes of {what}"):
            memory = np.frombuffer(_mapped(nbytes, at_once=False), np.uint8)
            # The buffer keeps the memory alive.
            return cl.Buffer(self._context, cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR, hostbuf=memory)

    def damage(self, queue: Any, buffer: Any) -> str:
        """Where bytes outside `buffer` were changed; empty if nowhere, or if it is not one of the owner's. Restores them."""
        return ""

    def unwritten(self, queue: Any, buffer: Any, dtype: DTypeLike) -> int:
        """How many elements of a buffer hold what it was made with; 0 where that is not known, or possible as a result."""
        return 0

    def _make(self, nbytes: int) -> Any:
        return cl.Buffer(self._context, cl.mem_flags.READ_WRITE | self._where, nbytes)

    def _copy_of(self, array: NDArray[Any], written: bool) -> Any:
        if self.reads_host and not written and not array.ctypes.data % ALIGNMENT:
            # The buffer keeps the array alive.
            return cl.Buffer(self._context, cl.mem_flags.READ_ONLY | cl.mem_flags.USE_HOST_PTR, hostbuf=array)
        access = cl.mem_flags.READ_WRITE if written else cl.mem_flags.READ_ONLY
        if self._where or array.nbytes < LARGE:
            return cl.Buffer(self._context, access | cl.mem_flags.COPY_HOST_PTR | self._where, hostbuf=array)
        # NVIDIA's driver keeps what a buffer is made from in the host's memory until a kernel reads the buffer.
        buffer = cl.Buffer(self._context, access, array.nbytes)
        cl.enqueue_copy(cl.CommandQueue(self._context), buffer, array)
        return buffer


_ALONE = {"flags": mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS} if hasattr(mmap, "MAP_PRIVATE") else {}


def aligned_empty(shape: tuple[int, ...], dtype: DTypeLike) -> NDArray[Any]:
    """An array that is not set to anything, in C order, from an address that is a multiple of `ALIGNMENT`."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize
    memory = np.empty(nbytes + ALIGNMENT, np.uint8) if nbytes < LARGE else np.frombuffer(_mapped(nbytes), np.uint8)
    start = -memory.ctypes.data % ALIGNMENT
    return memory[start : start + nbytes].view(dtype).reshape(shape)


def _mapped(nbytes: int, *, at_once: bool = True) -> mmap.mmap:
    """Memory that goes back to the system when it is freed; that of `malloc`, up to 32 MB, often stays with the process.

    It is zeros. With `at_once` the system may give it in large parts. Raises `MemoryError`.
    """
    try:
        found = mmap.mmap(-1, nbytes, **_ALONE)
    except OSError as error:
        raise MemoryError(f"{nbytes} bytes cannot be mapped") from error
    if at_once and hasattr(mmap, "MADV_HUGEPAGE"):
        found.madvise(mmap.MADV_HUGEPAGE)
    return found


def pinned(context: Any, queue: Any, dims: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """An array in memory of the host that the driver has locked, which it moves without a copy; freed with the array."""
    nbytes = int(np.prod(dims, dtype=np.int64)) * dtype.itemsize
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
    with translated(f"locking {nbytes} bytes of the host's memory"):
        if queue.properties & cl.command_queue_properties.OUT_OF_ORDER_EXEC_MODE_ENABLE:
            # Intel's driver for CPUs (2026.2.0) waits for ever in a later call where this memory is freed in such a queue.
            queue = cl.CommandQueue(context, queue.device)
        buffer = cl.Buffer(context, flags, nbytes)
        how: Any = cl.map_flags.READ | cl.map_flags.WRITE
        mapped, _ = cl.enqueue_map_buffer(queue, buffer, how, 0, (nbytes,), np.dtype(np.uint8))
    # Not a view, so that views of it have it as their base, and who counts its references sees them.
    return np.ndarray(dims, dtype, memoryview(mapped))


class GuardedBuffers(Buffers):
    """Each buffer is part of a larger one, between bytes that no kernel may touch.

    Those bytes, and what a new buffer holds, are NaN in every floating-point type: who reads them can see it in the result.
    There are none before the start except on a CPU: that takes sub-buffers, which NVIDIA's driver keeps apart from the buffer
    that they are part of, so that no stray write would be seen at all.
    """

    MARGIN = 4096
    """Bytes on each side: a multiple of every device's alignment of sub-buffers, and more than most rows."""
    PATTERN = b"\xfd\x7f"

    def __init__(self, context: Any, largest: int, *, on_cpu: bool) -> None:
        super().__init__(context, largest, on_cpu=on_cpu)
        self._start = self.MARGIN if on_cpu else 0
        self._guard: Bytes = np.frombuffer(self.PATTERN * (self.MARGIN // len(self.PATTERN)), np.uint8)
        self._guarded: set[int] = set()  # handles, since references would keep buffers that are replaced, as those of states

    def _make(self, nbytes: int) -> Any:
        return self._inside(np.resize(self._guard, nbytes))

    def _copy_of(self, array: NDArray[Any], written: bool) -> Any:
        return self._inside(array.reshape(-1).view(np.uint8))

    def _inside(self, content: Bytes) -> Any:
        nbytes = content.size
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.COPY_HOST_PTR | self._where
        whole = cl.Buffer(self._context, flags, hostbuf=np.concatenate([self._guard[: self._start], content, self._guard]))
        inner: Any = whole.get_sub_region(self._start, nbytes) if self._start else whole
        if inner is not whole:
            inner.whole = whole  # Intel's driver for CPUs forgets a buffer that only its parts use
        self._guarded.add(inner.int_ptr)
        return inner

    def _nbytes(self, buffer: Any) -> int:
        return int(buffer.size) if self._start else int(buffer.size) - self.MARGIN

    def damage(self, queue: Any, buffer: Any) -> str:
        if buffer is None or buffer.int_ptr not in self._guarded:
            return ""
        whole = buffer.whole if self._start else buffer
        nbytes = self._nbytes(buffer)
        found, sides = np.empty_like(self._guard), []
        for start, side in ((0, "before its start"), (self._start + nbytes, "after its end"))[not self._start :]:
            cl.enqueue_copy(queue, found, whole, src_offset=start)
            (changed,) = np.nonzero(found != self._guard)
            if changed.size:
                distance = self.MARGIN - int(changed[-1]) if side.startswith("before") else int(changed[0]) + 1
                sides.append(f"{changed.size} bytes changed {side} (the nearest is byte {distance} {side.split()[0]} it)")
                cl.enqueue_copy(queue, whole, self._guard, dst_offset=start)
        return " and ".join(sides)

    def unwritten(self, queue: Any, buffer: Any, dtype: DTypeLike) -> int:
        if buffer.int_ptr not in self._guarded or np.dtype(dtype).itemsize < 4:
            return 0
        found = np.empty(self._nbytes(buffer) // np.dtype(dtype).itemsize, dtype)
        cl.enqueue_copy(queue, found, buffer)
        same = found.view(np.uint16).reshape(found.size, -1) == np.frombuffer(self.PATTERN, np.uint16)
        return int(same.all(axis=1).sum())
