"""Calls of OpenCL past pyopencl: kernel objects, their arguments, and launches without an event each."""

import ctypes
import functools
import struct
from collections.abc import Callable, Iterable
from typing import Any

import pyopencl as cl
from pyopencl import _cl

from dovetail.locks import cached_property
from dovetail_gpu_opencl.launch import Scalar

__all__ = ["Bound", "KernelObject", "calls", "function"]


@functools.cache
def function(name: str) -> Any:
    """A function as pyopencl finds it, which returns the status; None where a loader does not let it be found.

    A call keeps the interpreter's lock: to give it away and take it again for 5 us costs a run of 32 launches 4 % on an H200.
    """
    for library in (None, _cl.__file__):
        try:
            found = getattr(ctypes.PyDLL(library), name)
        except (AttributeError, OSError, TypeError):
            continue
        found.restype = ctypes.c_void_p if name in ("clCreateKernel", "clCloneKernel") else ctypes.c_int
        return found
    return None


_BYTES = {size: ctypes.c_size_t(size) for size in (1, 2, 4, 8)}
"""Sizes of numbers."""

_HANDLE = ctypes.c_size_t(ctypes.sizeof(ctypes.c_void_p))
_packed = struct.Struct("P").pack


class KernelObject:
    """A kernel object that remembers its numbers: one that is bound again for the same node in other sizes has most of them.

    pyopencl takes 0.1 ms to make one, for which it looks for Python code in a database; OpenCL 1 us. A copy of one
    of the same program and entry has its arguments.
    """

    handle: ctypes.c_void_p

    def __init__(self, program: Any, entry: str, copied: "KernelObject | None" = None) -> None:
        self._of = program, entry
        self._own, self._release = function("clSetKernelArg"), function("clReleaseKernel")
        copy = None if copied is None else copied._copy()
        self.numbers: dict[int, Scalar] = {} if copied is None or copy is None else {**copied.numbers}
        """Those that are set, by position."""
        self._created = copy or _created(program, entry)
        self.handle = ctypes.c_void_p(self._created or self.kernel.int_ptr)

    def _copy(self) -> int | None:
        """The handle of a copy; None where the driver makes none."""
        clone = function("clCloneKernel")
        return clone(self.handle, None) if clone else None

    def __del__(self) -> None:
        if getattr(self, "_created", None):
            self._release(self.handle)

    @cached_property
    def kernel(self) -> Any:
        """It as pyopencl's, for launches with events, and for errors."""
        return cl.Kernel.from_int_ptr(self._created) if self._created else cl.Kernel(*self._of)

    def set_number(self, position: int, number: Scalar) -> None:
        """Sets an argument in 0.3 us. `kernel.set_arg` takes 5: it tries buffers and images first."""
        content = number.value.tobytes()
        if self._own is None or self._own(self.handle, position, _BYTES[len(content)], content):
            self.kernel.set_arg(position, number.value)  # which raises the error with its reason
        self.numbers[position] = number

    def set_place(self, position: int, place: Any) -> None:
        """Sets a buffer or an image; None for NULL."""
        content = _packed(0 if place is None else place.int_ptr)
        if self._own is None or self._own(self.handle, position, _HANDLE, content):
            self.kernel.set_arg(position, place)

    def set_local(self, position: int, nbytes: int) -> None:
        """Sets local memory of so many bytes."""
        if self._own is None or self._own(self.handle, position, ctypes.c_size_t(nbytes), None):
            self.kernel.set_arg(position, cl.LocalMemory(nbytes))


def _created(program: Any, entry: str) -> int | None:
    """The handle of a new kernel object; None where pyopencl makes it, or raises the error with its reason."""
    create = function("clCreateKernel")
    found: int | None = create(ctypes.c_void_p(program.int_ptr), entry.encode(), None) if create else None
    return found


Bound = tuple[KernelObject, tuple[int, ...], tuple[int, ...] | None]
"""A kernel object with its arguments, global and local size."""


def calls(queue: Any, launches: Iterable[Bound]) -> tuple[Callable[[], int], ...]:
    """The launches in a queue, which return the status. The kernel objects must live as long as these are used.

    pyopencl launches nothing without an event, for each of which NVIDIA's driver and device take time.
    """
    enqueue, to = function("clEnqueueNDRangeKernel"), ctypes.c_void_p(queue.int_ptr)
    if enqueue is None:
        return tuple(_not_found for _ in launches)
    return tuple([
        functools.partial(enqueue, to, one.handle, len(work), None, _sizes(work), _sizes(group), 0, None, None)
        for one, work, group in launches
    ])  # fmt: skip


def _not_found() -> int:
    return int(cl.status_code.INVALID_OPERATION)


class _Pointer(ctypes.c_void_p):
    """A pointer that keeps what it points to."""

    target: Any


@functools.lru_cache(1024)
def _sizes(values: tuple[int, ...] | None) -> _Pointer | None:
    """A pointer to the first. ctypes passes pointers and Python's ints in two thirds of the time of arrays and ctypes's ints."""
    if values is None:
        return None
    array = (ctypes.c_size_t * len(values))(*values)
    found = _Pointer(ctypes.addressof(array))
    found.target = array
    return found
